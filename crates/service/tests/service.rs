//! The service as a process of its own, over heap files that the tests make, and what its clients see
//! when one or the other goes away.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Int32Array, RecordBatch};
use arrow_schema::{DataType as ArrowType, Field, Schema};
use headrace_flow::CancelToken;
use headrace_format::heap::{self, Block, HeapBlocks, HeapType};
use headrace_ir::{
    AggregateCall, AggregateFunction, DataType, Field as IrField, NamedExpr, Pipeline, Program,
    Sink, Source, SourceKind,
};
use headrace_runner::ErrorClass;
use headrace_service::client::{self, Connection, Failure, Owner, RowSender, Start};
use headrace_service::outbox::{Body, Outbox};
use headrace_service::protocol::{self, Ask, Finished, Run};
use headrace_service::{LOCK_NAME, SOCKET_NAME};

#[allow(dead_code)]
#[path = "../../format/src/heap/tests/build.rs"]
mod build;

use build::{Page, attribute, int4, relation, tuple};

const PROGRAM: &str = env!("CARGO_BIN_EXE_headrace-gpu-service");
const BLOCKS: u32 = 100;
const ROWS_PER_BLOCK: i32 = 50;
const GROUPS: i32 = 7;
const PATIENCE: Duration = Duration::from_secs(20);

/// A service of this test's own; killed when this is dropped.
struct Service(Child);

impl Service {
    fn start(data: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["--processor", "cpu", "--data"]).arg(data).args(options);
        let service = Self(command.stderr(Stdio::null()).spawn().unwrap());
        eventually(|| Connection::open(data, PATIENCE, &CancelToken::new()).is_ok());
        service
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }

    fn ends(&mut self) {
        eventually(|| self.0.try_wait().unwrap().is_some());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually(mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "in vain");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A heap of numbers, whose owner reads some blocks by itself, and takes others back.
struct Heap {
    blocks: HeapBlocks,
    own: BTreeSet<u32>,
    changed: BTreeSet<u32>,
    rerouted: Mutex<Vec<u32>>,
    done: AtomicU32,
    /// It never says that there are no more rows.
    never_ends: bool,
    /// Asked at least once.
    was_asked: AtomicBool,
}

impl Heap {
    /// Writes the file, in which blocks that nobody may read from it have nothing.
    fn new(data: &Path, own: impl Fn(u32) -> bool, changed: impl Fn(u32) -> bool) -> Self {
        let attributes = vec![attribute("number", HeapType::Int4)];
        let own: BTreeSet<u32> = (0..BLOCKS).filter(|block| own(*block)).collect();
        let changed: BTreeSet<u32> =
            (0..BLOCKS).filter(|block| !own.contains(block) && changed(*block)).collect();
        let mut bytes = Vec::new();
        for block in 0..BLOCKS {
            let is_foreign = own.contains(&block) || changed.contains(&block);
            let here = if is_foreign { 0 } else { ROWS_PER_BLOCK as usize };
            let rows: Vec<_> =
                numbers(block).take(here).map(|n| tuple(&attributes, &[int4(n)])).collect();
            bytes.extend(Page::of(&rows).bytes);
        }
        std::fs::write(data.join("heap"), bytes).unwrap();
        let direct = (0..BLOCKS).filter(|block| !own.contains(block)).map(|block| block..block + 1);
        let blocks = HeapBlocks {
            relation: relation(attributes),
            files: vec!["heap".into()],
            blocks_per_file: BLOCKS,
            direct: direct.collect(),
            stamps: None,
        };
        let (rerouted, done) = (Mutex::default(), AtomicU32::new(0));
        let was_asked = AtomicBool::new(false);
        Self { blocks, own, changed, rerouted, done, never_ends: false, was_asked }
    }

    fn run(&self) -> Run {
        let column = IrField::new("number", DataType::Int32, true);
        let source = Source {
            kind: SourceKind::Batches,
            table_id: 0,
            table: "t".into(),
            columns: vec![column],
            ordinals: vec![0],
        };
        let calls = vec![
            AggregateCall::new("rows", AggregateFunction::Count, None, DataType::Int64),
            AggregateCall::new(
                "sum",
                AggregateFunction::Sum,
                Some(source.register(0)),
                DataType::Int64,
            ),
        ];
        let keys = vec![NamedExpr { name: "number".into(), expr: source.register(0) }];
        let sink = Sink::aggregate(keys, calls);
        Run {
            program: Program::new(vec![], Pipeline { source, steps: vec![], sink }),
            parameters: vec![],
            children: vec![],
            heaps: vec![self.blocks.clone()],
            ranges: vec![],
            fills_page_cache: true,
            threads: 2,
        }
    }

    /// Sends what only this one can read, until the run is over.
    fn serve(&self, rows: &RowSender, is_over: &AtomicBool) {
        let send = |block| {
            let mut batch = batch(block);
            while let Err(back) = rows.offer(batch, Duration::from_millis(1)) {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                batch = back;
            }
        };
        self.own.iter().for_each(|block| send(*block));
        let listed = BLOCKS - self.own.len() as u32;
        let mut is_open = !self.never_ends;
        while !is_over.load(Ordering::SeqCst) {
            let is_done = self.done.load(Ordering::SeqCst) == listed;
            let rerouted = std::mem::take(&mut *self.rerouted.lock().unwrap());
            rerouted.iter().for_each(|block| send(*block));
            if is_open && is_done {
                rows.finish();
                is_open = false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The groups, in order, if the run has an answer.
    fn ask(
        &self,
        connection: Connection,
        token: &CancelToken,
    ) -> Result<(Finished, Vec<Group>), Failure> {
        let (rows, is_over) = (RowSender::default(), AtomicBool::new(false));
        let mut batches = Vec::new();
        let mut emit = |batch: RecordBatch| {
            batches.push(batch);
            true
        };
        let finished = std::thread::scope(|scope| {
            scope.spawn(|| self.serve(&rows, &is_over));
            let outcome = client::run(connection, self.run(), &[], &rows, self, token, &mut emit);
            is_over.store(true, Ordering::SeqCst);
            outcome
        })?;
        let mut groups: Vec<_> = batches.iter().flat_map(groups).collect();
        groups.sort_unstable();
        Ok((finished, groups))
    }
}

impl Owner for Heap {
    fn hold(&self, first: Block, blocks: usize) -> Vec<bool> {
        self.was_asked.store(true, Ordering::SeqCst);
        (first.number..).take(blocks).map(|block| !self.changed.contains(&block)).collect()
    }

    fn reroute(&self, block: Block, why: String) {
        let block = block.number;
        // A run that is ended has blocks that do not hold.
        assert!(self.changed.contains(&block) || self.never_ends, "{block}: {why}");
        self.rerouted.lock().unwrap().push(block);
    }

    fn done(&self, blocks: u32) {
        self.done.fetch_add(blocks, Ordering::SeqCst);
    }
}

fn numbers(block: u32) -> impl Iterator<Item = i32> {
    let first = block as i32 * ROWS_PER_BLOCK;
    (first..first + ROWS_PER_BLOCK).map(|row| row % GROUPS)
}

fn batch(block: u32) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("number", ArrowType::Int32, true)]);
    let numbers = Int32Array::from_iter_values(numbers(block));
    RecordBatch::try_new(schema.into(), vec![Arc::new(numbers)]).unwrap()
}

/// A number, how often it is there, and the sum of that.
type Group = (i32, i64, i64);

fn groups(batch: &RecordBatch) -> Vec<Group> {
    let numbers = batch.column(0).as_primitive::<Int32Type>();
    let [rows, sums] = [1, 2].map(|i| batch.column(i).as_primitive::<Int64Type>());
    (0..batch.num_rows()).map(|i| (numbers.value(i), rows.value(i), sums.value(i))).collect()
}

fn expected() -> Vec<Group> {
    let mut rows = [0_i64; GROUPS as usize];
    (0..BLOCKS).flat_map(numbers).for_each(|number| rows[number as usize] += 1);
    (0..)
        .zip(rows)
        .map(|(number, rows): (i32, i64)| (number, rows, rows * i64::from(number)))
        .collect()
}

fn open(data: &Path) -> Connection {
    Connection::open(data, PATIENCE, &CancelToken::new()).unwrap()
}

fn detached() -> Start {
    Start { program: PROGRAM.into(), arguments: vec!["--processor".into(), "cpu".into()] }
}

/// Ends a service that was started by a client.
fn kill_detached(data: &Path) {
    let number: i32 =
        std::fs::read_to_string(data.join(LOCK_NAME)).unwrap().trim().parse().unwrap();
    // SAFETY: the process that has the lock of this test's folder.
    unsafe { libc::kill(number, libc::SIGKILL) };
}

#[test]
fn runs_have_the_rows_of_files_and_of_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let _service = Service::start(folder.path(), &[]);
    let mode = std::fs::metadata(folder.path().join(SOCKET_NAME)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    type Blocks = fn(u32) -> bool;
    let kinds: [(Blocks, Blocks); 4] = [
        (|_| false, |_| false),
        (|block| block % 3 == 0, |block| block % 5 == 1),
        (|_| true, |_| false),
        (|_| false, |_| true),
    ];
    for (own, changed) in kinds {
        let heap = Heap::new(folder.path(), own, changed);
        let (finished, groups) = heap.ask(open(folder.path()), &CancelToken::new()).unwrap();
        assert_eq!(groups, expected());
        assert_eq!(finished.report.processor, "cpu");
        assert_eq!(finished.report.rows_in, (BLOCKS as i32 * ROWS_PER_BLOCK) as u64);
        assert_eq!(heap.done.into_inner(), BLOCKS - heap.own.len() as u32);
    }
}

#[test]
fn garbage_ends_one_session_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start(folder.path(), &[]);
    let hello = {
        let mut bytes = Vec::new();
        let hello = protocol::Hello::own();
        protocol::write(&mut bytes, &Ask::Hello(hello), &[]).unwrap();
        bytes
    };
    let run = [&b"HRSV"[..], &[0xff; 12]].concat();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n12345"[..], &[0; 64], &hello[..20], &run] {
        for start in [&[][..], &hello] {
            let mut socket = UnixStream::connect(folder.path().join(SOCKET_NAME)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.write_all(start).unwrap();
            socket.write_all(garbage).unwrap();
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            let mut said = Vec::new();
            // Closed in time, perhaps with bytes unread.
            if let Err(cause) = socket.read_to_end(&mut said) {
                assert_eq!(cause.kind(), std::io::ErrorKind::ConnectionReset);
            }
        }
    }
    assert!(service.0.try_wait().unwrap().is_none());
    let heap = Heap::new(folder.path(), |_| false, |_| false);
    assert_eq!(heap.ask(open(folder.path()), &CancelToken::new()).unwrap().1, expected());
    let devices = open(folder.path()).devices(&CancelToken::new()).unwrap();
    assert_eq!(devices.devices.is_empty(), devices.why_none.is_some());
}

#[test]
fn a_run_that_was_cancelled_gives_its_turn_to_the_next_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let _service = Service::start(folder.path(), &["--runs", "1"]);
    let stuck = Heap { never_ends: true, ..Heap::new(folder.path(), |_| false, |_| false) };
    let heap = Heap::new(folder.path(), |_| false, |_| false);
    let (token, away) = (CancelToken::new(), CancelToken::new());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| stuck.ask(open(folder.path()), &token));
        eventually(|| stuck.was_asked.load(Ordering::SeqCst));
        let second = scope.spawn(|| heap.ask(open(folder.path()), &CancelToken::new()));
        let third = scope.spawn(|| heap.ask(open(folder.path()), &away));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!second.is_finished() && !third.is_finished());
        away.cancel();
        assert!(third.join().unwrap().is_err());
        let cancelled = Instant::now();
        token.cancel();
        let failure = first.join().unwrap().unwrap_err();
        assert_eq!(failure.class, None, "{failure}");
        let (finished, groups) = second.join().unwrap().unwrap();
        assert!(cancelled.elapsed() < Duration::from_secs(2), "{:?}", cancelled.elapsed());
        assert_eq!(groups, expected());
        assert!(finished.queued_ms > 90.0, "{}", finished.queued_ms);
    });
}

#[test]
fn a_service_that_is_killed_is_a_lost_connection_and_comes_back_when_it_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let (data, token) = (folder.path(), CancelToken::new());
    let mut service = Service::start(data, &[]);
    let stuck = Heap { never_ends: true, ..Heap::new(data, |_| false, |_| false) };
    std::thread::scope(|scope| {
        let run = scope.spawn(|| stuck.ask(open(data), &token));
        eventually(|| stuck.was_asked.load(Ordering::SeqCst));
        service.signal(libc::SIGKILL);
        let failure = run.join().unwrap().unwrap_err();
        assert!(failure.class.is_none() && failure.is_of_the_place(), "{failure}");
    });
    service.ends();
    // The socket of the dead one is still there. Many want the next one at once, and get the same.
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| Connection::open_or_start(data, &detached(), &token).unwrap());
        }
    });
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let heap = Heap::new(data, |block| block < 9, |block| block == 30);
    let connection = Connection::open_or_start(data, &detached(), &token).unwrap();
    assert_eq!(heap.ask(connection, &token).unwrap().1, expected());
    // A second one ends by itself.
    let mut command = Command::new(PROGRAM);
    let second = command.arg("--data").arg(data).stderr(Stdio::null()).status().unwrap();
    assert!(second.success());
    open(data);
    kill_detached(data);
}

#[test]
fn a_service_that_is_told_to_end_tells_its_clients() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start(folder.path(), &[]);
    let stuck = Heap { never_ends: true, ..Heap::new(folder.path(), |_| false, |_| false) };
    std::thread::scope(|scope| {
        let run = scope.spawn(|| stuck.ask(open(folder.path()), &CancelToken::new()));
        eventually(|| stuck.was_asked.load(Ordering::SeqCst));
        service.signal(libc::SIGTERM);
        let failure = run.join().unwrap().unwrap_err();
        assert_eq!(failure.class, Some(ErrorClass::Cancelled), "{failure}");
        assert!(failure.is_of_the_place() && failure.message.contains("told to end"), "{failure}");
    });
    service.ends();
    assert!(service.0.try_wait().unwrap().unwrap().success());
    assert!(!folder.path().join(SOCKET_NAME).exists());
}

#[test]
fn it_ends_with_its_server_and_when_nobody_needs_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = server.id().to_string();
    let mut service = Service::start(folder.path(), &["--postmaster", &pid]);
    std::thread::sleep(Duration::from_millis(50));
    assert!(service.0.try_wait().unwrap().is_none());
    server.kill().unwrap();
    server.wait().unwrap();
    service.ends();
    let mut service = Service::start(folder.path(), &["--idle-exit", "1"]);
    let began = Instant::now();
    service.ends();
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
}

#[test]
fn what_cannot_be_started_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let token = CancelToken::new();
    let start = Start { program: "/nowhere/service".into(), arguments: vec![] };
    let failure = Connection::open_or_start(folder.path(), &start, &token).unwrap_err();
    assert!(failure.message.contains("/nowhere/service cannot be started"), "{failure}");
    let start = Start { program: PROGRAM.into(), arguments: vec!["--processor=tpu".into()] };
    let failure = Connection::open_or_start(folder.path(), &start, &token).unwrap_err();
    assert!(failure.message.contains("valid values are cuda, auto, cpu"), "{failure}");
    let failure = Connection::open_or_start(&folder.path().join("no"), &detached(), &token);
    let failure = failure.unwrap_err();
    assert!(failure.message.contains("data directory"), "{failure}");
}

/// A service that does not answer is no reason to wait for long: the session runs the query.
#[test]
fn a_service_that_is_stopped_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), &[]);
    service.signal(libc::SIGSTOP);
    let began = Instant::now();
    let quick = Duration::from_millis(50);
    let failure = Connection::open(folder.path(), quick, &CancelToken::new()).unwrap_err();
    assert!(failure.is_of_the_place() && began.elapsed() < Duration::from_secs(2), "{failure}");
    service.signal(libc::SIGCONT);
    open(folder.path());
}

/// What rows through the socket cost, from a batch to a batch: shared memory would bring nothing, since a
/// server reads blocks at a tenth of this.
#[test]
#[ignore = "a measurement"]
fn rows_travel_at_2_gb_per_s() {
    const BATCHES: usize = 1000;
    let (writes, reads) = UnixStream::pair().unwrap();
    let numbers = Int32Array::from_iter_values(0..1 << 19);
    let schema = Schema::new(vec![Field::new("number", ArrowType::Int32, true)]);
    let batch = RecordBatch::try_new(schema.into(), vec![Arc::new(numbers)]).unwrap();
    let bytes = (BATCHES * (4 << 19)) as f64;
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let outbox = Outbox::default();
            (0..BATCHES).for_each(|_| outbox.push_bulk(Ask::Rows, Body::Rows(batch.clone())));
            outbox.push_last(Ask::EndOfRows);
            outbox.write_to(&writes).unwrap();
        });
        let mut reader = std::io::BufReader::with_capacity(64 << 10, &reads);
        let mut rows = 0;
        while rows < BATCHES << 19 {
            let frame = protocol::read::<Ask>(&mut reader).unwrap().unwrap();
            rows += protocol::decode_batch(frame.body).unwrap().num_rows();
        }
    });
    let gb_per_s = bytes / began.elapsed().as_nanos() as f64;
    println!("{gb_per_s:.2} GB/s");
    assert!(gb_per_s > 2.0, "{gb_per_s:.2} GB/s");
}
