//! The door for assistants: the Model Context Protocol over standard input and output, a JSON-RPC message a line.
//!
//! ```text
//! line ─► request ─► a task each ─► list_tables | describe | query | explain ─► text ─► line
//!            └─ notifications/cancelled ─► ends the task of a request
//! ```
//!
//! Nothing is ever written: the tools read what `--data` names. An answer has so many rows and bytes at most, and says when there
//! are more.

use std::collections::HashMap;
use std::io::{BufRead, Read, Write};
use std::sync::Arc;

use futures::StreamExt;
use headrace_cli::ResultWriter;
use headrace_engine::failure::{Class, Failure};
use headrace_engine::sql::type_name;
use headrace_engine::{PUBLIC, Session};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::server::{Listed, Server, all_tables, columns_of};
use crate::statement::{Asker, plan};

/// Versions of the protocol that are spoken, the newest first.
const VERSIONS: [&str; 2] = ["2025-06-18", "2024-11-05"];

const ROWS: u64 = 100;
const ROWS_MAX: u64 = 10_000;

/// Bytes of an answer: what reads it pays for each.
const ANSWER_BYTES_MAX: usize = 64 << 10;

const LINE_BYTES_MAX: u64 = 4 << 20;

const INSTRUCTIONS: &str = "SQL over files that may be larger than memory. Call list_tables and describe first. The dialect is \
    PostgreSQL's, and queries only read. Aggregate in SQL rather than asking for rows.";

/// Answers until standard input ends.
pub async fn serve(server: Arc<Server>) -> Result<(), String> {
    let (answers, mut answered) = mpsc::unbounded_channel::<Value>();
    let writing = std::thread::spawn(move || {
        let mut out = std::io::stdout().lock();
        while let Some(answer) = answered.blocking_recv() {
            if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
                break;
            }
        }
    });
    let mut lines = lines();
    let mut running: HashMap<String, AbortHandle> = HashMap::new();
    while let Some(line) = lines.recv().await {
        let line = line?;
        running.retain(|_, task| !task.is_finished());
        let request: Value = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(_) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Err(error) => {
                let _ = answers.send(failed(&Value::Null, -32700, &error.to_string()));
                continue;
            }
        };
        let method = request["method"].as_str().unwrap_or_default().to_string();
        if method == "notifications/cancelled" {
            if let Some(task) = running.remove(&request["params"]["requestId"].to_string()) {
                task.abort();
            }
            continue;
        }
        // Other notifications want no answer, and neither do answers.
        let Some(id) = request.get("id").filter(|_| !method.is_empty()).cloned() else { continue };
        let (server, answers, key) = (Arc::clone(&server), answers.clone(), id.to_string());
        let task = tokio::spawn(async move {
            let answer = match answer(&server, &method, &request["params"]).await {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Err((code, text)) => failed(&id, code, &text),
            };
            let _ = answers.send(answer);
        });
        running.insert(key, task.abort_handle());
    }
    // Nobody reads answers any more.
    running.into_values().for_each(|task| task.abort());
    drop(answers);
    let _ = tokio::task::spawn_blocking(|| writing.join()).await;
    Ok(())
}

/// The lines of standard input, read on a thread of their own.
fn lines() -> mpsc::Receiver<Result<Vec<u8>, String>> {
    let (sender, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            let read = read.map_err(|error| error.to_string()).and_then(|bytes| {
                let is_cut = bytes as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n');
                let told = || format!("a message of over {LINE_BYTES_MAX} bytes");
                if is_cut { Err(told()) } else { Ok(bytes) }
            });
            let is_last = read.is_err();
            if read == Ok(0) || sender.blocking_send(read.map(|_| line)).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

fn failed(id: &Value, code: i32, text: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": text } })
}

async fn answer(
    server: &Arc<Server>,
    method: &str,
    params: &Value,
) -> Result<Value, (i32, String)> {
    match method {
        "initialize" => {
            let asked = params["protocolVersion"].as_str().unwrap_or_default();
            let version = VERSIONS.into_iter().find(|version| *version == asked);
            Ok(json!({
                "protocolVersion": version.unwrap_or(VERSIONS[0]),
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "headrace", "version": env!("CARGO_PKG_VERSION") },
                "instructions": INSTRUCTIONS,
            }))
        }
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({ "tools": tools() })),
        "tools/call" => called(server, params).await,
        _ => Err((-32601, format!("there is no method {method}"))),
    }
}

fn tools() -> Value {
    let tool = |name: &str, description: &str, properties: Value, required: &[&str]| {
        json!({
            "name": name,
            "description": description,
            "inputSchema": { "type": "object", "properties": properties, "required": required },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        })
    };
    let sql = || json!({ "sql": { "type": "string", "description": "One SELECT statement" } });
    let mut query = sql();
    query["max_rows"] = json!({
        "type": "integer", "minimum": 1, "maximum": ROWS_MAX, "default": ROWS, "description": "Rows of the answer at most",
    });
    json!([
        tool("list_tables", "The names of all tables", json!({}), &[]),
        tool(
            "describe",
            "The columns of a table with their types, and how many rows it has",
            json!({ "table": { "type": "string" } }),
            &["table"],
        ),
        tool("query", "Runs a query, which only reads, and gives its rows as CSV", query, &["sql"]),
        tool(
            "explain",
            "The plan of a query, and on which processor each part would run",
            sql(),
            &["sql"]
        ),
    ])
}

async fn called(server: &Arc<Server>, params: &Value) -> Result<Value, (i32, String)> {
    let arguments = &params["arguments"];
    let text = |name: &str| {
        let text = arguments[name].as_str().map(str::to_string);
        text.ok_or_else(|| (-32602, format!("{name} is needed")))
    };
    let session = server.session();
    let done = match params["name"].as_str().unwrap_or_default() {
        "list_tables" => {
            let names = all_tables(&session).into_iter().map(|table| table.shown());
            Ok(names.collect::<Vec<_>>().join("\n"))
        }
        "describe" => describe(server, &session, &text("table")?).await,
        "query" => {
            let rows_max = arguments["max_rows"].as_u64().unwrap_or(ROWS).clamp(1, ROWS_MAX);
            rows(server, &session, &text("sql")?, rows_max).await
        }
        "explain" => rows(server, &session, &format!("EXPLAIN {}", text("sql")?), ROWS_MAX).await,
        other => return Err((-32602, format!("there is no tool {other}"))),
    };
    let (text, is_error) = match done {
        Ok(text) => (text, false),
        Err(failure) => (told(&failure), true),
    };
    Ok(json!({ "content": [{ "type": "text", "text": text }], "isError": is_error }))
}

/// A failure with its place and what helps.
fn told(failure: &Failure) -> String {
    let mut text = failure.cause.clone();
    if let Some(shown) = failure.place.as_ref().and_then(|place| place.shown.as_ref()) {
        text += &format!("\n{shown}");
    }
    if let Some(hint) = &failure.hint {
        text += &format!("\nhint: {hint}");
    }
    text
}

async fn describe(server: &Arc<Server>, session: &Session, table: &str) -> Result<String, Failure> {
    // As list_tables shows it, or without its schema.
    let mut listed = all_tables(session).into_iter();
    let known = listed.find(|known| known.shown() == table);
    let known =
        known.unwrap_or_else(|| Listed { schema: PUBLIC.to_string(), name: table.to_string() });
    let (work, named) = (session.clone(), known.clone());
    let schema = server.work.of(async move { columns_of(&work, &named).await }).await?;
    let Some(schema) = schema else {
        let failure = Failure::new(Class::UnknownTable, format!("there is no table {table}"));
        return Err(failure.hint("list_tables has their names"));
    };
    let sql = format!("SELECT count(*) AS rows FROM {}", known.quoted());
    let count = rows(server, session, &sql, 1).await?;
    let columns = schema.fields().iter();
    let columns = columns.map(|field| format!("{} {}", field.name(), type_name(field.data_type())));
    let count = count.lines().nth(1).unwrap_or_default().to_string();
    Ok(format!("{count} rows\n{}", columns.collect::<Vec<_>>().join("\n")))
}

/// The rows of a query as CSV.
async fn rows(
    server: &Arc<Server>,
    session: &Session,
    sql: &str,
    rows_max: u64,
) -> Result<String, Failure> {
    let asker = Asker { name: "assistant".to_string(), may_write: false };
    let planned = plan(server, session, &asker, sql, Vec::new()).await?;
    let mut running = planned.begin().await?;
    let broken = |error: std::io::Error| Failure::new(Class::Internal, error.to_string());
    let mut writer = ResultWriter::new("csv", running.schema()).map_err(broken)?;
    let (mut text, mut count, mut is_cut) = (Vec::new(), 0_u64, false);
    while let Some(batch) = running.next().await {
        let batch = batch?;
        let left = (rows_max - count) as usize;
        is_cut |= batch.num_rows() > left;
        let batch = batch.slice(0, batch.num_rows().min(left));
        writer.write(&mut text, &batch).map_err(broken)?;
        count += batch.num_rows() as u64;
        if is_cut || text.len() > ANSWER_BYTES_MAX {
            is_cut = true;
            break;
        }
    }
    writer.finish(&mut text).map_err(broken)?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if text.len() > ANSWER_BYTES_MAX {
        let end = (0..=ANSWER_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        is_cut = true;
    }
    if is_cut {
        text += "\n.. there is more: aggregate, or ask with WHERE and LIMIT\n";
    }
    Ok(text)
}
