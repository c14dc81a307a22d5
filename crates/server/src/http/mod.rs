//! HTTP: the routes.
//!
//! ```text
//! GET  /          the page                     POST /query   a statement, whose text is the body
//! GET  /tables    tables and their columns     GET  /query?q=  a query, which changes nothing
//! GET  /health    200 while it serves          GET  /metrics   for Prometheus
//! ```
//!
//! The format of an answer is what `Accept` or `?format=` asks for. Passwords come as Basic authentication. A request of
//! another site's page is refused: a browser would send its user's password along. Without passwords, so is one for a name
//! that is not this machine's.

mod answer;
mod begun;
mod connection;
mod lines;
mod patient;

use std::sync::Arc;

use arrow_schema::{Field, SchemaRef};
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use headrace_engine::Session;
use headrace_engine::failure::{Class, Failure};
use headrace_engine::sql::type_name;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::connections;
use crate::server::{LEVERS, Listed, Server, all_columns};
use crate::statement::{Asker, plan};
use crate::tls::Tls;
use answer::{Format, failed};
use connection::{Places, Refusal, Seat};

/// Who asks where nobody is asked for a password.
const NOBODY: &str = "local";

const PAGE: &str = include_str!("page.html");

/// Serves until the server ends.
pub async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: Option<Tls>,
    connections_max: usize,
    ending: watch::Receiver<bool>,
) {
    let routes = routes(server);
    let places = Places::new(connections_max);
    connections::each(listener, ending.clone(), |socket| {
        let (tls, routes, places) = (tls.clone(), routes.clone(), places.clone());
        connection::serve(socket, tls, routes, places, ending.clone())
    })
    .await;
}

fn routes(server: Arc<Server>) -> Router {
    let asked = Router::new()
        .route("/", get(page))
        .route("/tables", get(all_tables))
        .route("/query", get(query).post(statement))
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn_with_state(Arc::clone(&server), checked));
    asked.route("/health", get(|| async { "ok\n" })).with_state(server)
}

/// Lets in whoever may ask, and tells the routes who that is.
async fn checked(
    State(server): State<Arc<Server>>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let seat = parts.extensions.remove::<Seat>();
    let settled = who(&server, &parts.headers).and_then(|name| {
        seat.map_or(Ok(()), |seat| seat.settle())?;
        Ok(name)
    });
    let name = match settled {
        Ok(name) => name,
        Err(refusal) => {
            connection::drain(&parts.headers, body).await;
            return *refusal;
        }
    };
    let statement = match connection::whole(body).await {
        Ok(statement) => statement,
        Err(refusal) => return *refusal,
    };
    let may_write = parts.method == axum::http::Method::POST;
    parts.extensions.insert(Asker { name, may_write });
    let request = axum::extract::Request::from_parts(parts, Body::from(statement));
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let frames = HeaderValue::from_static("frame-ancestors 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, frames);
    response
}

/// Who asks.
///
/// # Errors
/// The answer to one who may not.
fn who(server: &Server, headers: &HeaderMap) -> Result<String, Refusal> {
    // Where no password is asked for, a page elsewhere could have a name of its own lead here.
    let is_misled = server.users.is_none() && !names_this_machine(headers);
    if is_misled || is_of_another_site(headers) {
        let failure = Failure::new(Class::Forbidden, "a request of another site's page");
        return Err(Box::new(failed(&failure)));
    }
    let Some(users) = &server.users else { return Ok(NOBODY.to_string()) };
    let given = headers.get(header::AUTHORIZATION).and_then(|given| given.to_str().ok());
    given.and_then(|given| users.of_header(given)).ok_or_else(|| {
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"headrace\", charset=\"UTF-8\"")];
        let text = "a name and its password are needed\n";
        Box::new((StatusCode::UNAUTHORIZED, challenge, text).into_response())
    })
}

/// Whether a browser says that a page from elsewhere makes the request.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return !matches!(site, "same-origin" | "none");
    }
    match (text("origin"), text("host")) {
        (Some(origin), Some(host)) => origin.split_once("://").is_none_or(|(_, from)| from != host),
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// Whether the name that was asked for is this machine's.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let address = name.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

async fn page() -> Response {
    let html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (html, PAGE).into_response()
}

async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, server.metrics_text()).into_response()
}

/// What a request says beside its statement.
#[derive(Debug, Default, Deserialize)]
struct Asked {
    q: Option<String>,
    format: Option<String>,
}

async fn query(
    State(server): State<Arc<Server>>,
    Query(asked): Query<Asked>,
    asker: axum::Extension<Asker>,
    headers: HeaderMap,
) -> Response {
    match &asked.q {
        Some(text) => answered(&server, asker.0, text, &asked, &headers).await,
        None => {
            let failure = Failure::new(Class::Syntax, "there is no query");
            failed(&failure.hint("/query?q=select%201, or POST /query with the text as the body"))
        }
    }
}

async fn statement(
    State(server): State<Arc<Server>>,
    Query(asked): Query<Asked>,
    asker: axum::Extension<Asker>,
    headers: HeaderMap,
    text: String,
) -> Response {
    answered(&server, asker.0, &text, &asked, &headers).await
}

async fn answered(
    server: &Arc<Server>,
    asker: Asker,
    text: &str,
    asked: &Asked,
    headers: &HeaderMap,
) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = match Format::asked(asked.format.as_deref(), accept) {
        Ok(format) => format,
        Err(failure) => return failed(&failure),
    };
    let body = async {
        let session = server.session();
        let sql = only_statement(&session, text)?;
        let planned = plan(server, &session, &asker, sql, Vec::new()).await?;
        format.body(planned.begin().await?).await
    };
    match body.await {
        Ok(body) => ([(header::CONTENT_TYPE, format.content_type())], body).into_response(),
        Err(failure) => failed(&failure),
    }
}

/// The statement of a request.
fn only_statement<'a>(session: &Session, text: &'a str) -> Result<&'a str, Failure> {
    let statements = session.statements(text);
    match statements.map_err(|error| Failure::of(&error, &LEVERS))?.as_slice() {
        [(_, sql)] => Ok(sql.trim()),
        [] => Err(Failure::new(Class::Syntax, "there is no statement")),
        several => {
            let cause = format!("a request of {} statements", several.len());
            Err(Failure::new(Class::Syntax, cause).hint("send one at a time"))
        }
    }
}

/// The tables that can be opened, with their columns.
async fn all_tables(State(server): State<Arc<Server>>) -> Response {
    let session = server.session();
    let columns = server.work.of(async move { all_columns(&session).await }).await;
    let columns = match columns {
        Ok(columns) => columns,
        Err(failure) => return failed(&failure),
    };
    let column =
        |field: &Arc<Field>| json!({ "name": field.name(), "type": type_name(field.data_type()) });
    let table = |(table, schema): (Listed, SchemaRef)| json!({ "schema": table.schema, "name": table.name, "columns": schema.fields().iter().map(column).collect::<Vec<_>>() });
    let body = Value::from(columns.into_iter().map(table).collect::<Vec<_>>());
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        given
            .iter()
            .map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn pages_of_other_sites_are_told_from_this_one() {
        for (given, is_other) in [
            (&[][..], false),
            (&[("host", "h:1")], false),
            (&[("host", "h:1"), ("origin", "http://h:1")], false),
            (&[("host", "h:1"), ("origin", "http://h:2")], true),
            (&[("host", "h:1"), ("origin", "null")], true),
            (&[("origin", "http://h:1")], true),
            (&[("sec-fetch-site", "same-origin")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "cross-site"), ("host", "h")], true),
            (&[("sec-fetch-site", "same-site")], true),
        ] {
            assert_eq!(is_of_another_site(&headers(given)), is_other, "{given:?}");
        }
    }

    #[test]
    fn this_machine_has_few_names() {
        for (host, is_own) in [
            ("localhost:8432", true),
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("localhost", true),
            ("evil.example:8432", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            assert_eq!(names_this_machine(&headers(&[("host", host)])), is_own, "{host}");
        }
    }
}
