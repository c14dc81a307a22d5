//! `headrace settings`: every setting, flag and environment variable as Markdown, which is docs/settings.md.
//!
//! Names, defaults and meanings come from the program itself: the session's settings and the command line's.
//! Environment variables are named where they are read, so [`ENVIRONMENT`] repeats them, and `tests/cli/docs`
//! compares it with the sources.

use clap::{Arg, Args, Command, CommandFactory};
use datafusion::common::config::ConfigEntry;
use headrace_engine::{Session, SessionOptions};

use crate::args::{Cli, EngineArgs, QueryArgs};
use crate::error::Result;
use crate::output;
use crate::session::failure;

/// Settings whose default is the number of the machine's cores.
const CORES: [&str; 3] = [
    "headrace.threads",
    "datafusion.execution.target_partitions",
    "datafusion.execution.planning_concurrency",
];

/// clap's name for the flags of [`EngineArgs`].
const GROUP: &str = "EngineArgs";

/// Environment variables and their meaning.
const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "HEADRACE_LOG",
        "What is logged to standard error, such as `info` or `headrace_gpu=debug` (default: `warn`)",
    ),
    (
        "HEADRACE_CACHE",
        "Folder of compiled kernels, of measured ceilings and of what was read of tables of many files (default: `$XDG_CACHE_HOME/headrace`, `~/.cache/headrace`)",
    ),
    ("HEADRACE_CEILINGS", "File of measured ceilings (default: `ceilings.json` in that folder)"),
    ("HEADRACE_NVRTC", "The NVRTC library, or its folder; no other is tried then"),
    (
        "HEADRACE_HASTY_KERNELS",
        "`off`: a query waits for the full kernel where it is the first to want one; otherwise it runs with one that was \
         compiled in haste, while the full one is compiled for the next",
    ),
    ("HEADRACE_CUFILE", "The cuFile library, or its folder; no other is tried then"),
    (
        "TMPDIR",
        "Folder of temporary files, unless `--spill-folder` names another (default: `/tmp`)",
    ),
    (
        "XDG_RUNTIME_DIR",
        "Where this user's GPU service has its socket, in `headrace` (default: `headrace-UID` in `TMPDIR`)",
    ),
    ("XDG_CACHE_HOME", "Where `HEADRACE_CACHE` is by default"),
    (
        "XDG_STATE_HOME",
        "Where the shell's history is kept, in `headrace/history` (default: `~/.local/state`)",
    ),
    ("XDG_DATA_HOME", "Where `headrace demo` keeps its tables (default: `~/.local/share`)"),
    ("NO_COLOR", "If it is not empty, the shell shows no colours"),
    ("CUDA_HOME, CUDA_PATH", "Where cuFile is looked for beside the usual places"),
    (
        "CUFILE_ENV_PATH_JSON, CUFILE_LOGFILE_PATH",
        "cuFile's own; without them its log goes to `HEADRACE_CACHE`",
    ),
    ("NVTX_INJECTION64_PATH", "Set by NVIDIA's profilers: stages are shown on their timelines"),
    (
        "PGHOST, PGPORT, PGUSER, PGPASSWORD, PGPASSFILE, PGDATABASE, PGOPTIONS, PGAPPNAME, PGSSLMODE, PGSSLROOTCERT, \
         PGSSLCERT, PGSSLKEY",
        "What a `--dsn` leaves open, as libpq takes them",
    ),
    (
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL",
        "Who asks S3, and where it is; others that the AWS SDKs read are taken, too",
    ),
    (
        "AWS_PROFILE, AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE, AWS_METADATA_ENDPOINT",
        "What says so where these do not",
    ),
    ("AWS_SKIP_SIGNATURE, AWS_ALLOW_HTTP", "`true`: S3 is asked as nobody; by plain HTTP"),
    (
        "HTTPS_PROXY, HTTP_PROXY, NO_PROXY",
        "Proxies to web servers and S3, and to which there are none",
    ),
    ("SSL_CERT_FILE, SSL_CERT_DIR", "Certificates that are trusted, in place of the system's"),
];

const HEAD: &str = "\
# Settings

Written by `headrace settings`; `scripts/settings-docs` writes this file anew, and a test compares the two.

Sizes are bytes, or numbers with a unit: MB = 10^6, MiB = 2^20. What a pipeline is and where it runs:
[sql.md](sql.md#pipelines), [performance.md](performance.md#what-to-choose).

## In SQL

`SET headrace.processor = 'cpu'` changes a setting for the statements that follow, `SHOW headrace.processor` shows one,
`RESET headrace.processor` or `SET .. = DEFAULT` takes it back; the last part of a name says as much where no other setting
ends so (`SET threads = 2`). `SHOW ALL` shows all, `SHOW ALL VERBOSE` with their meanings. A value that cannot be is an error that lists those that can.
Limits of memory and of temporary files belong to a session from its start: they are flags.

";

const PLANNER: &str = "\
### The planner's own

DataFusion's settings can be set as well; `SHOW ALL VERBOSE` says what each does. They are for what runs on the planner.
Defaults differ under `--memory-limit`, from which partitions and reservations follow.

";

const FLAGS: &str = "
## On the command line

`headrace --help` and `headrace COMMAND --help` say the same. Exit codes: 0 done, 1 the query or a file failed, 2 the
command line is wrong, 130 interrupted by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP, 131 by SIGQUIT; of `doctor` 0 all well, 1 something could be faster, 2 something is broken.

### headrace

";

const ENGINE: &str = "
### How queries run

Flags of `headrace` and of the commands that run queries.

";

const VARIABLES: &str = "
## In the environment

An empty value is none.

| variable | meaning |
|---|---|
";

/// Prints the page.
pub fn run() -> Result<()> {
    let session = Session::new(SessionOptions::default()).map_err(|e| failure("start", &e))?;
    let entries = session.context().state_ref().read().config_options().entries();
    output::print(&page(entries))
}

fn page(mut entries: Vec<ConfigEntry>) -> String {
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    let (own, planner): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| entry.key.starts_with("headrace."));
    let mut page = HEAD.to_string();
    page += "| setting | default | meaning |\n|---|---|---|\n";
    for entry in &own {
        row(&mut page, &[code(&entry.key), default_of(entry), cell(entry.description)]);
    }
    page += "\n";
    page += PLANNER;
    page += "| setting | default |\n|---|---|\n";
    for entry in &planner {
        row(&mut page, &[code(&entry.key), default_of(entry)]);
    }
    page += FLAGS;
    page += &flags(&QueryArgs::augment_args(Command::new("headrace")), GROUP);
    page += ENGINE;
    page += &flags(&EngineArgs::augment_args(Command::new("engine")), "");
    let mut known = Vec::new();
    for command in Cli::command().get_subcommands() {
        describe(&mut page, command, "headrace", &mut known);
    }
    page += VARIABLES;
    for (names, meaning) in ENVIRONMENT {
        let names: Vec<String> = names.split(", ").map(code).collect();
        row(&mut page, &[names.join(", "), (*meaning).to_string()]);
    }
    page
}

/// A command with its subcommands; one with the arguments of an earlier one only refers to it.
fn describe(page: &mut String, command: &Command, above: &str, known: &mut Vec<(String, String)>) {
    let name = format!("{above} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    *page += &format!("\n### {name}\n\n{}.\n", cell(&about));
    let flags = flags(command, GROUP);
    match known.iter().find(|(_, same)| *same == flags) {
        Some((earlier, _)) => *page += &format!("\nFlags as of `{earlier}`.\n"),
        None if flags.is_empty() => {}
        None => {
            *page += &format!("\n{flags}");
            known.push((name.clone(), flags));
        }
    }
    for below in command.get_subcommands() {
        describe(page, below, &name, known);
    }
}

/// A command's arguments as a table, without a group of flags that has its own table.
fn flags(command: &Command, left_out: &str) -> String {
    let group = command.get_groups().find(|group| group.get_id() == left_out);
    let apart: Vec<_> = group.into_iter().flat_map(|group| group.get_args()).collect();
    let mut table = String::new();
    for arg in command.get_arguments() {
        if arg.is_hide_set() || apart.contains(&arg.get_id()) {
            continue;
        }
        let defaults: Vec<_> =
            arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
        let default =
            if arg.get_action().takes_values() { code(&defaults.join(",")) } else { String::new() };
        row(&mut table, &[code(&spelled(arg)), default, meaning(arg)]);
    }
    if !table.is_empty() {
        table.insert_str(0, "| flag | default | meaning |\n|---|---|---|\n");
    }
    if !apart.is_empty() {
        table += "\nAnd those of [how queries run](#how-queries-run).\n";
    }
    table
}

/// `-o, --out <OUT>`, or `<PATH>` for an unnamed argument.
fn spelled(arg: &Arg) -> String {
    let names: Vec<String> = arg
        .get_short()
        .map(|short| format!("-{short}"))
        .into_iter()
        .chain(arg.get_long().map(|long| format!("--{long}")))
        .collect();
    let takes = arg.get_action().takes_values();
    let value = arg.get_value_names().map(|names| names[0].to_string());
    let value = value.unwrap_or_else(|| arg.get_id().as_str().to_uppercase());
    match (names.is_empty(), takes) {
        (true, _) => value,
        (false, true) => format!("{} {value}", names.join(", ")),
        (false, false) => names.join(", "),
    }
}

/// The meaning, with the possible values if there are few.
fn meaning(arg: &Arg) -> String {
    let text = cell(&arg.get_help().map(ToString::to_string).unwrap_or_default());
    let values =
        if arg.get_action().takes_values() { arg.get_possible_values() } else { Vec::new() };
    let names: Vec<String> = values.iter().map(|value| code(value.get_name())).collect();
    if names.is_empty() { text } else { format!("{text}: {}", names.join(", ")) }
}

fn default_of(entry: &ConfigEntry) -> String {
    match &entry.value {
        _ if CORES.contains(&entry.key.as_str()) => "the machine's cores".to_string(),
        Some(value) => code(value),
        None => String::new(),
    }
}

fn row(page: &mut String, cells: &[String]) {
    *page += &format!("| {} |\n", cells.join(" | "));
}

/// A text as code; an empty one unchanged.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", cell(text)) }
}

/// A text in one line of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_spelled_as_they_are_typed() {
        let command = QueryArgs::augment_args(Command::new("headrace"));
        let spelled: Vec<String> = command.get_arguments().map(spelled).collect();
        for wanted in ["-c, --command SQL", "--data PATH", "--no-rc", "--processor P"] {
            assert!(spelled.iter().any(|flag| flag == wanted), "{wanted}: {spelled:?}");
        }
        let table = flags(&command, GROUP);
        assert!(table.contains("| `--format FORMAT` |  | ") && table.contains("`ndjson`"));
        assert!(!table.contains("--processor"), "{table}");
    }

    #[test]
    fn texts_stay_in_their_cells() {
        assert_eq!(cell("a |\n  b"), "a \\| b");
        assert_eq!(code(""), "");
    }
}
