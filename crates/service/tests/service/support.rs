//! A service, and a heap whose owner is the test.

use std::collections::BTreeSet;
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
use headrace_format::heap::{Block, HeapBlocks, HeapType};
use headrace_ir::{
    AggregateCall, AggregateFunction, DataType, Field as IrField, Input, NamedExpr, Pipeline,
    Program, Sink, Source, Step,
};
use headrace_runner::{Fallback, Processor, Settings};
use headrace_service::LOCK_NAME;
use headrace_service::client::{self, Connection, Failure, Owner, RowSender, Start};
use headrace_service::protocol::{self, Finished, Run};

use crate::build::{Page, attribute, int4, relation, tuple};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_headrace-gpu-service");
pub const BLOCKS: u32 = 100;
pub const ROWS_PER_BLOCK: i32 = 50;
pub const GROUPS: i32 = 7;
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A service of this test's own; killed when this is dropped.
pub struct Service(pub Child);

impl Service {
    pub fn start(data: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["--processor", "cpu", "--data"]).arg(data).args(options);
        let service = Self(command.stderr(Stdio::null()).spawn().unwrap());
        eventually(|| Connection::open(data, PATIENCE, &CancelToken::new()).is_ok());
        service
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }

    pub fn ends(&mut self) {
        eventually(|| self.0.try_wait().unwrap().is_some());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn eventually(mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "in vain");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A heap of numbers, whose owner reads some blocks by itself, and takes others back.
pub struct Heap {
    pub blocks: HeapBlocks,
    pub own: BTreeSet<u32>,
    pub changed: BTreeSet<u32>,
    pub rerouted: Mutex<Vec<u32>>,
    pub done: AtomicU32,
    /// It never says that there are no more rows.
    pub never_ends: bool,
    /// Asked at least once.
    pub was_asked: AtomicBool,
    /// What its run does with the rows.
    pub steps: Vec<Step>,
}

impl Heap {
    /// Writes the file, in which blocks that nobody may read from it have nothing.
    pub fn new(data: &Path, own: impl Fn(u32) -> bool, changed: impl Fn(u32) -> bool) -> Self {
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
        let (never_ends, steps) = (false, Vec::new());
        Self { blocks, own, changed, rerouted, done, never_ends, was_asked, steps }
    }

    pub fn run(&self) -> Run {
        let column = IrField::new("number", DataType::Int32, true);
        let source = Source {
            input: Input::Batches(0),
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
            program: Program::new(vec![], Pipeline { source, steps: self.steps.clone(), sink }),
            parameters: vec![],
            tables: protocol::Tables::Heaps(protocol::Heaps {
                heaps: vec![self.blocks.clone()],
                fills_page_cache: true,
                ..protocol::Heaps::default()
            }),
            batches: Vec::new(),
            settings: Settings {
                processor: Processor::Cuda,
                fallback: Fallback::Allow,
                threads: 2,
                ..Settings::default()
            },
            session: None,
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
    pub fn ask(
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

pub fn numbers(block: u32) -> impl Iterator<Item = i32> {
    let first = block as i32 * ROWS_PER_BLOCK;
    (first..first + ROWS_PER_BLOCK).map(|row| row % GROUPS)
}

pub fn batch(block: u32) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("number", ArrowType::Int32, true)]);
    let numbers = Int32Array::from_iter_values(numbers(block));
    RecordBatch::try_new(schema.into(), vec![Arc::new(numbers)]).unwrap()
}

/// A number, how often it is there, and the sum of that.
pub type Group = (i32, i64, i64);

pub fn groups(batch: &RecordBatch) -> Vec<Group> {
    let numbers = batch.column(0).as_primitive::<Int32Type>();
    let [rows, sums] = [1, 2].map(|i| batch.column(i).as_primitive::<Int64Type>());
    (0..batch.num_rows()).map(|i| (numbers.value(i), rows.value(i), sums.value(i))).collect()
}

pub fn expected() -> Vec<Group> {
    let mut rows = [0_i64; GROUPS as usize];
    (0..BLOCKS).flat_map(numbers).for_each(|number| rows[number as usize] += 1);
    (0..)
        .zip(rows)
        .map(|(number, rows): (i32, i64)| (number, rows, rows * i64::from(number)))
        .collect()
}

pub fn open(data: &Path) -> Connection {
    Connection::open(data, PATIENCE, &CancelToken::new()).unwrap()
}

pub fn detached() -> Start {
    Start { program: PROGRAM.into(), arguments: vec!["--processor".into(), "cpu".into()] }
}

/// Ends a service that was started by a client.
pub fn kill_detached(data: &Path) {
    let number: i32 =
        std::fs::read_to_string(data.join(LOCK_NAME)).unwrap().trim().parse().unwrap();
    // SAFETY: the process that has the lock of this test's folder.
    unsafe { libc::kill(number, libc::SIGKILL) };
}
