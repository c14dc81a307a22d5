//! Faults of files, through every path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headrace_flow::{AccessPath, HostCache, RaceError, RaceOptions, Verdict};
use headrace_io::{FaultPlan, IoError};

use crate::support::{Act, TestFile, check_bytes, forced_paths, race};

const SIZE: usize = 500_000;

/// A mapping is damaged for everybody at once: of several consumers, one that is at work on a sound
/// chunk may be the first to notice.
fn consumers(path: &str) -> usize {
    if path == "mapped" { 1 } else { 2 }
}

#[test]
fn an_io_error_names_chunk_file_and_offset() {
    let file = TestFile::new(SIZE);
    for (name, options) in forced_paths() {
        let plan = FaultPlan { io_error_at: Some(300_000), ..FaultPlan::default() };
        let race = race(vec![file.faulty(plan)], file.chunks(50_000), options);
        let error = check_bytes(&race, consumers(name), &file.content).unwrap_err();
        let RaceError::Read { chunk, source } = &error else { panic!("{name}: {error}") };
        // The byte is the first of chunk 6; its block, if blocks are read, is also in chunk 5.
        assert!((5..=6).contains(chunk), "{name}: {error}");
        assert_eq!(source.path().unwrap(), file.path);
        assert!((290_000..=300_000).contains(&source.offset().unwrap()), "{name}: {error}");
        assert!(error.to_string().contains("data.bin"), "{error}");
    }
}

#[test]
fn truncation_is_an_error_on_every_path() {
    let file = TestFile::new(SIZE);
    for (name, options) in forced_paths() {
        let plan = FaultPlan { truncated_at: Some(250_000), ..FaultPlan::default() };
        let race = race(vec![file.faulty(plan)], file.chunks(50_000), options);
        let error = check_bytes(&race, consumers(name), &file.content).unwrap_err();
        let RaceError::Read { chunk, source } = &error else { panic!("{name}: {error}") };
        assert!(*chunk >= 4, "{name}: {error}");
        let expected = if name == "mapped" {
            matches!(source, IoError::Poisoned { .. })
        } else {
            matches!(source, IoError::UnexpectedEnd { .. })
        };
        assert!(expected, "{name}: {error}");
    }
}

#[test]
fn a_file_that_really_shrinks_during_the_race_is_a_changed_file() {
    for (name, options) in forced_paths() {
        let file = TestFile::new(SIZE);
        let race = race(file.files(), file.chunks(10_000), options);
        let consumer = Act(|chunk, _: &[&[u8]]| {
            if chunk == 3 {
                let handle = std::fs::OpenOptions::new().write(true).open(&file.path).unwrap();
                handle.set_len(200_000).unwrap();
            }
            Ok(Verdict::Continue)
        });
        let error = race.run_host(vec![consumer]).map(|_| ()).unwrap_err();
        let RaceError::Changed(IoError::Changed { what, .. }) = &error else {
            panic!("{name}: {error}");
        };
        assert!(what.contains("200000 bytes"), "{what}");
    }
}

#[test]
fn a_file_written_during_the_race_is_never_a_mixture() {
    for (name, options) in forced_paths() {
        let file = TestFile::new(SIZE);
        let race = race(file.files(), file.chunks(10_000), options);
        let written = AtomicBool::new(false);
        let consumer = Act(|_, buffers: &[&[u8]]| {
            if !written.swap(true, Ordering::SeqCst) {
                std::fs::write(&file.path, vec![0xAA; SIZE]).unwrap();
            }
            // A consumer that trips over the new bytes must not hide the cause.
            if buffers[0].first() == Some(&0xAA) {
                Err("bad data".into())
            } else {
                Ok(Verdict::Continue)
            }
        });
        let error = race.run_host(vec![consumer]).map(|_| ()).unwrap_err();
        assert!(matches!(error, RaceError::Changed(_)), "{name}: {error}");
    }
}

#[test]
fn the_identity_is_checked_after_the_last_chunk() {
    let file = TestFile::new(SIZE);
    for (name, options) in forced_paths() {
        let twin = file.faulty(FaultPlan { changed: true, ..FaultPlan::default() });
        let race = race(vec![twin], file.chunks(50_000), options);
        let error = check_bytes(&race, 1, &file.content).unwrap_err();
        assert!(matches!(error, RaceError::Changed(_)), "{name}: {error}");
    }
}

#[test]
fn a_failed_read_is_not_admitted_to_the_cache() {
    let file = TestFile::new(SIZE);
    file.make_cold();
    let cache = HostCache::new(4 << 20);
    let options = RaceOptions { cache: Some(cache.clone()), ..RaceOptions::default() };
    // Everything fails once; the device recovers.
    let plan =
        FaultPlan { io_error_at: Some(100_000), io_error_times: Some(1), ..FaultPlan::default() };
    let race = race(vec![file.faulty(plan)], file.chunks(50_000), options);
    assert!(matches!(check_bytes(&race, 2, &file.content), Err(RaceError::Read { .. })));
    assert!(cache.stats().held_bytes <= 4 << 20);
    for _ in 0..2 {
        check_bytes(&race, 2, &file.content).unwrap();
    }
    assert!(cache.stats().hits > 0);
}

#[test]
fn an_error_waits_for_the_reads_that_are_under_way() {
    let file = TestFile::new(SIZE);
    for (name, options) in forced_paths() {
        let twin = file.faulty(FaultPlan {
            io_error_at: Some(0),
            latency: Duration::from_millis(10),
            ..FaultPlan::default()
        });
        let race = race(vec![twin.clone()], file.chunks(50_000), options);
        check_bytes(&race, 2, &file.content).unwrap_err();
        let reads = twin.reads();
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(twin.reads(), reads, "{name}: reads went on after the race");
    }
}

#[test]
fn a_poisoned_mapping_wins_over_the_complaint_of_the_consumer() {
    let file = TestFile::new(SIZE);
    let plan = FaultPlan { io_error_at: Some(100_000), ..FaultPlan::default() };
    let options = RaceOptions { access: AccessPath::Mapped, ..RaceOptions::default() };
    let race = race(vec![file.faulty(plan)], file.chunks(SIZE), options);
    for panics in [false, true] {
        let consumer = Act(move |_, buffers: &[&[u8]]| {
            let zeros = buffers[0][100_000..104_000].iter().all(|byte| *byte == 0);
            assert!(!(panics && zeros), "zeros where there should be none");
            if zeros { Err("division by zero".into()) } else { Ok(Verdict::Continue) }
        });
        let error = race.run_host(vec![consumer]).map(|_| ()).unwrap_err();
        let RaceError::Read { chunk: 0, source: IoError::Poisoned { .. } } = error else {
            panic!("{error}");
        };
    }
}
