//! Cancellation at every stage of the race on the host.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headrace_flow::{CancelToken, Race, RaceError, Verdict};
use headrace_io::FaultPlan;

use crate::support::{Act, TestFile, forced_paths, slot_paths};

const SIZE: usize = 1_000_000;

fn is_cancelled<T>(result: Result<T, RaceError>) -> bool {
    matches!(result, Err(RaceError::Cancelled))
}

#[test]
fn before_anything_was_read() {
    let file = TestFile::new(SIZE);
    for (name, options) in forced_paths() {
        let token = CancelToken::new();
        token.cancel();
        let twin = file.faulty(FaultPlan::default());
        let race = Race::new(vec![twin.clone()], file.chunks(50_000), options, token).unwrap();
        let consumer = Act(|_, _: &[&[u8]]| panic!("a cancelled race was consumed"));
        assert!(is_cancelled(race.run_host(vec![consumer])), "{name}");
        assert_eq!(twin.reads(), 0, "{name}");
    }
}

#[test]
fn while_reads_are_under_way() {
    let file = TestFile::new(SIZE);
    for (name, mut options) in slot_paths() {
        // The twin's latency is spent one completion after the other by the ring's thread.
        options.queue_depth = 4;
        let token = CancelToken::new();
        let latency = Duration::from_millis(50);
        let twin = file.faulty(FaultPlan { latency, ..FaultPlan::default() });
        let race =
            Race::new(vec![twin.clone()], file.chunks(100_000), options, token.clone()).unwrap();
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while twin.reads() == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                token.cancel();
            });
            let consumer = Act(|_, _: &[&[u8]]| Ok(Verdict::Continue));
            assert!(is_cancelled(race.run_host(vec![consumer])), "{name}");
        });
        // All of it would take more than 120 reads of 50 ms on few threads.
        assert!(start.elapsed() < Duration::from_secs(2), "{name}: {:?}", start.elapsed());
        let reads = twin.reads();
        std::thread::sleep(Duration::from_millis(70));
        assert_eq!(twin.reads(), reads, "{name}: reads went on after the race");
    }
}

#[test]
fn while_slots_are_filled_and_not_consumed() {
    let file = TestFile::new(SIZE);
    for (name, options) in slot_paths() {
        let token = CancelToken::new();
        let twin = file.faulty(FaultPlan::default());
        let race =
            Race::new(vec![twin.clone()], file.chunks(50_000), options, token.clone()).unwrap();
        let consumed = AtomicUsize::new(0);
        let consumer = Act(|_, _: &[&[u8]]| {
            consumed.fetch_add(1, Ordering::SeqCst);
            // The other slots fill up meanwhile.
            std::thread::sleep(Duration::from_millis(50));
            token.cancel();
            Ok(Verdict::Continue)
        });
        assert!(is_cancelled(race.run_host(vec![consumer])), "{name}");
        assert_eq!(consumed.load(Ordering::SeqCst), 1, "{name}: filled slots were consumed");
        drop(race);
        assert_eq!(std::sync::Arc::strong_count(&twin), 1, "{name}");
    }
}

#[test]
fn while_consumers_work() {
    let file = TestFile::new(SIZE);
    for (name, options) in forced_paths() {
        let token = CancelToken::new();
        let race = Race::new(file.files(), file.chunks(10_000), options, token.clone()).unwrap();
        let consumed = AtomicUsize::new(0);
        let act = |_: usize, _: &[&[u8]]| {
            if consumed.fetch_add(1, Ordering::SeqCst) == 5 {
                token.cancel();
            }
            Ok(Verdict::Continue)
        };
        assert!(is_cancelled(race.run_host(vec![Act(act), Act(act)])), "{name}");
        assert!(consumed.load(Ordering::SeqCst) < 20, "{name}");
    }
}

#[test]
fn after_the_last_chunk_the_answer_stands() {
    let file = TestFile::new(100_000);
    for (name, options) in forced_paths() {
        let token = CancelToken::new();
        let race = Race::new(file.files(), file.chunks(100_000), options, token.clone()).unwrap();
        let consumer = Act(|_, _: &[&[u8]]| Ok(Verdict::Enough));
        assert!(race.run_host(vec![consumer]).is_ok(), "{name}");
        token.cancel();
        let consumer = Act(|_, _: &[&[u8]]| Ok(Verdict::Enough));
        assert!(is_cancelled(race.run_host(vec![consumer])), "{name}: a cancelled token stays so");
    }
}
