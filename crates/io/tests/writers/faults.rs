//! The engines over the fault-injecting twin.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use headrace_io::write::{SinkFile, WriteAt};
use headrace_io::{FaultPlan, IoError, ReadMode};

use crate::support::{Bench, Folder, KINDS, content};

const WINDOW_BYTES: usize = 256 << 10;

#[test]
fn short_and_interrupted_writes_are_resumed() {
    let wanted = content(100_001);
    for kind in KINDS {
        let mut short_writes = 0;
        for seed in 0..4 {
            let folder = Folder::new();
            let twin: Arc<dyn WriteAt> = folder.faulty(
                wanted.len(),
                FaultPlan {
                    seed,
                    short_permille: 600,
                    interrupted_permille: 300,
                    ..FaultPlan::default()
                },
            );
            let mut bench = Bench::new(kind, WINDOW_BYTES);
            short_writes += bench.write_all(&twin, &wanted, 40_960).unwrap().short;
            twin.commit(true).unwrap();
            assert!(std::fs::read(&folder.path).unwrap() == wanted, "{kind:?}, seed {seed}");
        }
        assert!(short_writes > 0, "{kind:?}: the twin injected nothing");
    }
}

#[test]
fn an_io_error_names_file_offset_cause_and_remedy() {
    for kind in KINDS {
        let folder = Folder::new();
        let plan = FaultPlan { io_error_at: Some(40_000), ..FaultPlan::default() };
        let twin = folder.faulty(100_000, plan);
        let mut bench = Bench::new(kind, WINDOW_BYTES);
        let error = bench.write(twin.clone(), 0, &content(100_000)).unwrap_err();
        let IoError::Write { path, offset, bytes, cause } = &error else {
            panic!("{kind:?}: {error}");
        };
        assert_eq!(path, &folder.path);
        assert!((*offset..offset + bytes).contains(&40_000), "{kind:?}: {error}");
        assert_eq!(cause.raw_os_error(), Some(libc::EIO));
        assert!(error.to_string().contains("out.bin") && error.to_string().contains("dmesg"));
        assert_eq!((error.path(), error.offset()), (Some(folder.path.as_path()), Some(*offset)));
        // The rest of the file is as good as before.
        bench.write(twin, 49_152, &content(1000)).unwrap();
    }
}

#[test]
fn a_full_file_system_is_an_error_that_says_where() {
    for kind in KINDS {
        let folder = Folder::new();
        let plan = FaultPlan { full_at: Some(50_000), ..FaultPlan::default() };
        let twin = folder.faulty(100_000, plan);
        let mut bench = Bench::new(kind, WINDOW_BYTES);
        bench.write(twin.clone(), 0, &content(49_152)).unwrap();
        let error = bench.write(twin.clone(), 49_152, &content(50_848)).unwrap_err();
        let IoError::Write { offset, cause, .. } = &error else { panic!("{kind:?}: {error}") };
        assert!(*offset >= 50_000, "{kind:?}: {error}");
        assert_eq!(cause.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().contains("free space"), "{error}");
        drop(twin);
        assert!(folder.names().is_empty(), "{kind:?}");
    }
}

#[test]
fn refused_direct_writes_go_through_the_page_cache_and_are_counted() {
    let wanted = content(40_960);
    for kind in KINDS.into_iter().filter(|kind| kind.mode() == ReadMode::Direct) {
        let folder = Folder::new();
        let plan = FaultPlan { direct_refused: true, ..FaultPlan::default() };
        let twin = folder.faulty(wanted.len(), plan);
        let done = Bench::new(kind, WINDOW_BYTES).write(twin.clone(), 0, &wanted).unwrap();
        assert_eq!((done.direct_bytes, done.direct_refused_bytes), (0, 40_960), "{kind:?}");
        assert_eq!(done.buffered_bytes, 40_960);
        twin.commit(false).unwrap();
        assert!(std::fs::read(&folder.path).unwrap() == wanted, "{kind:?}");
    }
}

#[test]
fn a_transient_error_is_an_error_once() {
    let wanted = content(4096);
    for kind in KINDS {
        let folder = Folder::new();
        let twin = folder.faulty(
            4096,
            FaultPlan { io_error_at: Some(5), io_error_times: Some(1), ..FaultPlan::default() },
        );
        let mut bench = Bench::new(kind, 8192);
        let error = bench.write(twin.clone(), 0, &wanted).unwrap_err();
        assert!(matches!(error, IoError::Write { .. }), "{error}");
        bench.write(twin.clone(), 0, &wanted).unwrap();
        twin.commit(false).unwrap();
        assert!(std::fs::read(&folder.path).unwrap() == wanted, "{kind:?}");
    }
}

#[test]
fn latency_is_felt_and_measured() {
    let latency = Duration::from_millis(30);
    for kind in KINDS {
        let folder = Folder::new();
        let twin = folder.faulty(4096, FaultPlan { latency, ..FaultPlan::default() });
        let mut bench = Bench::new(kind, 8192);
        bench.submit(twin.clone(), 0, 4096, 1);
        let completion = bench.completions.recv().unwrap();
        completion.result.unwrap();
        assert!(completion.latency_ns >= latency.as_nanos() as u64, "{kind:?}");
        assert_eq!(twin.writes(), 1);
    }
}

/// A file that takes nothing and says nothing.
#[derive(Debug)]
struct Silent(Arc<SinkFile>);

impl WriteAt for Silent {
    fn sink(&self) -> &SinkFile {
        &self.0
    }

    fn intercept(
        &self,
        _: ReadMode,
        _: u64,
        _: &[u8],
        outcome: io::Result<usize>,
    ) -> io::Result<usize> {
        outcome.map(|_| 0)
    }
}

#[test]
fn a_write_that_takes_nothing_does_not_go_on_for_ever() {
    for kind in KINDS {
        let folder = Folder::new();
        let silent = Arc::new(Silent(folder.sink(8192)));
        let error = Bench::new(kind, 8192).write(silent, 0, &content(8192)).unwrap_err();
        let IoError::Write { offset: 0, cause, .. } = error else { panic!("{error}") };
        assert_eq!(cause.kind(), io::ErrorKind::WriteZero);
    }
}
