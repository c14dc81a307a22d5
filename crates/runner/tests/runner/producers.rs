//! What a producer of batches may do to a run: fail, block, be fast, and keep what is freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::Schema;
use headrace_flow::CancelToken;
use headrace_format::batches::{BatchTable, batch_channel};
use headrace_runner::{ErrorClass, Processor, Runner, RunnerOptions, StreamTable};

use crate::inputs::{Codes, batch, run, stream, total};
use crate::support::run_with;

/// A producer with a thread of its own; how many batches it has sent.
fn produced(
    queue: usize,
    schema: &Schema,
    make: impl FnMut(usize) -> Option<Result<RecordBatch, String>> + Send + 'static,
) -> (Arc<StreamTable>, Arc<AtomicUsize>, std::thread::JoinHandle<()>) {
    let (sender, receiver) = batch_channel(queue);
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let mut make = make;
    let thread = std::thread::spawn(move || {
        for number in 0.. {
            match make(number) {
                None => return sender.finish(),
                Some(Err(error)) => return sender.fail(error),
                Some(Ok(batch)) => match sender.send(batch) {
                    true => counted.fetch_add(1, Ordering::SeqCst),
                    false => return,
                },
            };
        }
    });
    (stream(BatchTable::new("t", schema, receiver)), sent, thread)
}

#[test]
fn a_producer_that_fails_is_the_error_of_the_run() {
    let (table, _, producer) =
        produced(2, &batch(0..1, Codes::One).schema(), |number| match number {
            0..5 => Some(Ok(batch(0..100, Codes::One))),
            _ => Some(Err("the other side hung up".into())),
        });
    let error = run(&total(&table), table).unwrap_err();
    assert!(error.to_string().contains("t: the other side hung up"), "{error}");
    assert_eq!(error.class(), ErrorClass::Io);
    producer.join().unwrap();
}

#[test]
fn a_run_whose_producer_blocks_can_be_cancelled_at_once() {
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (table, _, producer) =
        produced(2, &batch(0..1, Codes::One).schema(), move |number| match number {
            0..5 => Some(Ok(batch(0..100, Codes::One))),
            _ => {
                let _ = blocked.recv();
                None
            }
        });
    let token = CancelToken::new();
    let canceller = std::thread::spawn({
        let token = token.clone();
        move || {
            std::thread::sleep(Duration::from_millis(50));
            token.cancel();
            Instant::now()
        }
    });
    let runner = Runner::new(&RunnerOptions::default());
    let program = total(&table);
    let error = run_with(Processor::Cpu, &runner, &program, &[], &[table], &token).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Cancelled, "{error}");
    assert!(canceller.join().unwrap().elapsed() < Duration::from_secs(2));
    drop(release);
    producer.join().unwrap();
}

#[test]
fn a_producer_is_ahead_of_the_run_by_a_bounded_amount() {
    const BATCHES: usize = 500;
    // Each batch is a chunk of its own: as large as is wanted.
    let alive = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (counted, peak) = (Arc::clone(&alive), Arc::clone(&most));
    let schema = guarded(&Arc::new(AtomicUsize::new(1))).schema();
    let (table, sent, producer) = produced(2, &schema, move |number| {
        (number < BATCHES).then(|| {
            let now = counted.fetch_add(1, Ordering::SeqCst) + 1;
            peak.fetch_max(now, Ordering::SeqCst);
            Ok(guarded(&counted))
        })
    });
    let (answer, report) = run(&total(&table), table).unwrap();
    producer.join().unwrap();
    let each: i64 = (0..GUARDED_ROWS).sum();
    assert_eq!(answer, [(each * BATCHES as i64).to_string()]);
    assert_eq!(
        (sent.load(Ordering::SeqCst), report.streamed.race.chunks),
        (BATCHES, BATCHES as u64)
    );
    assert_eq!(alive.load(Ordering::SeqCst), 0, "batches are kept");
    // Two threads with eight chunks each, the queue, and those being handed over.
    let most = most.load(Ordering::SeqCst);
    assert!(most <= 2 * 8 + 2 + 8, "{most} batches at a time");
}

const GUARDED_ROWS: i64 = 1 << 17;

/// A batch whose numbers lie in memory that counts itself out when it is freed.
fn guarded(alive: &Arc<AtomicUsize>) -> RecordBatch {
    struct Guard {
        values: Vec<i64>,
        alive: Arc<AtomicUsize>,
    }
    impl Drop for Guard {
        fn drop(&mut self) {
            self.alive.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let guard = Guard { values: (0..GUARDED_ROWS).collect(), alive: Arc::clone(alive) };
    let bytes = guard.values.len() * 8;
    let start = std::ptr::NonNull::new(guard.values.as_ptr().cast_mut().cast::<u8>()).unwrap();
    // SAFETY: the memory is the guard's, which lives as long as the buffer and is not changed.
    let buffer =
        unsafe { arrow_buffer::Buffer::from_custom_allocation(start, bytes, Arc::new(guard)) };
    let numbers =
        Int64Array::new(arrow_buffer::ScalarBuffer::new(buffer, 0, GUARDED_ROWS as usize), None);
    RecordBatch::try_from_iter([("number", Arc::new(numbers) as ArrayRef)]).unwrap()
}
