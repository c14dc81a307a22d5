//! The program under test, as processes that end with their test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_headrace-cluster");

/// Seconds after which an executor is lost where none is to be: a busy machine may keep it from saying anything for long.
const TIMEOUT: &str = "120";

/// The same where one is to be lost: the fewest that there can be.
const TIMEOUT_MIN: &str = "6";

/// Longer than it takes until an executor is lost that says nothing.
pub const UNTIL_LOST: Duration = Duration::from_millis(8500);

/// A process that is killed when it is dropped, and what it says after its first line.
pub struct Running(Child, Arc<Mutex<String>>);

impl Running {
    /// Starts the program; returns what it says first.
    fn start(arguments: &[&str]) -> (Self, String) {
        let mut command = Command::new(PROGRAM);
        let mut child =
            command.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        said.read_line(&mut first).unwrap();
        // A pipe that is full would stop it.
        let log = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                *heard.lock().unwrap() += &(line + "\n");
            }
        });
        (Self(child, log), first)
    }

    /// What it has said after its first line.
    pub fn log(&self) -> String {
        self.1.lock().unwrap().clone()
    }

    /// As by `kill -9`.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Sends it a signal, by its name.
    pub fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }

    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A scheduler with executors.
pub struct Cluster {
    pub address: String,
    pub executors: Vec<Running>,
    /// Where each executor listens.
    pub places: Vec<String>,
    /// A folder for each executor.
    pub work: Vec<PathBuf>,
    pub scheduler: Running,
    /// Options of the scheduler, of executors, and of queries, by which they let each other in.
    access: [Vec<String>; 3],
    folder: tempfile::TempDir,
}

impl Cluster {
    pub fn start(executors: usize) -> Self {
        Self::with(executors, TIMEOUT, Default::default())
    }

    /// One that soon notices which executors are lost.
    pub fn start_to_lose(executors: usize) -> Self {
        Self::with(executors, TIMEOUT_MIN, Default::default())
    }

    /// One whose members let each other in by options of theirs.
    pub fn closed(executors: usize, access: [Vec<String>; 3]) -> Self {
        Self::with(executors, TIMEOUT, access)
    }

    fn with(executors: usize, timeout: &str, access: [Vec<String>; 3]) -> Self {
        let listen = match access[0].iter().any(|option| option == "--listen") {
            true => &[][..],
            false => &["--listen", "127.0.0.1:0"][..],
        };
        let own: Vec<&str> = access[0].iter().map(String::as_str).collect();
        let arguments = [&["scheduler", "--executor-timeout", timeout][..], listen, &own].concat();
        let (scheduler, said) = Running::start(&arguments);
        let address = said.split_whitespace().nth(2).unwrap_or_else(|| panic!("{said}"));
        let mut cluster = Self {
            address: address.to_string(),
            executors: Vec::new(),
            places: Vec::new(),
            work: Vec::new(),
            scheduler,
            access,
            folder: tempfile::tempdir().unwrap(),
        };
        (0..executors).for_each(|_| cluster.add_executor());
        cluster
    }

    pub fn add_executor(&mut self) {
        let work = self.folder.path().join(self.executors.len().to_string());
        let place = ["--scheduler", &self.address, "--work-folder", work.to_str().unwrap()];
        let own: Vec<&str> = self.access[1].iter().map(String::as_str).collect();
        let arguments = [&["executor"][..], &place, &own].concat();
        let (executor, said) = Running::start(&arguments);
        assert!(said.starts_with("executor at"), "{said}");
        self.places.push(said.split([' ', ',']).nth(2).unwrap().to_string());
        self.executors.push(executor);
        self.work.push(work);
    }

    /// A query over the tables of a folder, that has been started. They are small, and in shares all the same.
    pub fn started(&self, data: &Path, sql: &str, more: &[&str]) -> Child {
        let mut command = Command::new(PROGRAM);
        command.args(["query", "--cluster", &self.address, "--data"]).arg(data);
        let shares = if more.contains(&"--shares") { &[][..] } else { &["--shares", "8"] };
        command.args(["--format", "csv"]).args(&self.access[2]).args(shares).args(more).arg(sql);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// What comes of a query.
    pub fn outcome(&self, data: &Path, sql: &str, more: &[&str]) -> Output {
        self.started(data, sql, more).wait_with_output().unwrap()
    }

    /// The answer of a query, with the lines in order.
    pub fn answer(&self, data: &Path, sql: &str, more: &[&str]) -> Vec<String> {
        answer(sql, &self.outcome(data, sql, more))
    }
}

/// The lines of an answer, in order.
pub fn answer(sql: &str, outcome: &Output) -> Vec<String> {
    assert!(outcome.status.success(), "{sql}: {}", failure(outcome));
    sorted(&String::from_utf8_lossy(&outcome.stdout))
}

pub fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

/// What a query that fails says.
pub fn failure(outcome: &Output) -> String {
    String::from_utf8_lossy(&outcome.stderr).into_owned()
}

/// How many tasks of an executor have made something.
pub fn outputs(work: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(work) else { return 0 };
    let of = |path: PathBuf| {
        let is_data = path.extension().is_some_and(|extension| extension == "arrow");
        let has_rows = is_data && path.metadata().is_ok_and(|it| it.len() > 0);
        usize::from(has_rows) + outputs(&path)
    };
    entries.flatten().map(|entry| of(entry.path())).sum()
}

/// The program.
pub fn command() -> Command {
    Command::new(PROGRAM)
}

/// Runs the program to its end.
pub fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

/// Sends a process a signal, by its name.
pub fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &process.to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Waits until something is so.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
