//! The service as a process of its own, over heap files that the tests make, and what its clients see
//! when one or the other goes away.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow_array::{Int32Array, RecordBatch};
use arrow_schema::{DataType as ArrowType, Field, Schema};
use headrace_flow::CancelToken;
use headrace_format::heap;
use headrace_ir::{CudaFunction, CudaTableFunction, DataType, Expr, NamedExpr, Step};
use headrace_runner::ErrorClass;
use headrace_service::SOCKET_NAME;
use headrace_service::client::{self, Connection, RowSender, Start};
use headrace_service::outbox::{Body, Outbox};
use headrace_service::protocol::{self, Ask, TableCall};

#[allow(dead_code)]
#[path = "../../../format/src/heap/tests/build.rs"]
mod build;
mod support;

use support::*;

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
        assert_eq!(finished.report.streamed.processor, "cpu");
        assert_eq!(finished.report.streamed.rows_in, (BLOCKS as i32 * ROWS_PER_BLOCK) as u64);
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
        std::thread::sleep(Duration::from_millis(300));
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
        // Its thread may have begun late.
        assert!(finished.queued_ms > 50.0, "{}", finished.queued_ms);
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
fn functions_in_cuda_are_its_owners_or_nobodys() {
    let number = || Expr::Register {
        index: 0,
        data_type: DataType::Int32,
        nullable: true,
        name: "number".into(),
    };
    let function = CudaFunction {
        name: "same".into(),
        parameters: vec![("x".into(), DataType::Int32)],
        result: DataType::Int32,
        body: "return x;".into(),
    };
    let expr = Expr::Cuda {
        function: Box::new(function),
        arguments: vec![number()],
        twin: Some(Box::new(number())),
    };
    let calls = vec![Step::Compute(NamedExpr { name: "again".into(), expr })];
    for (options, may) in [
        (&[][..], true),
        (&["--cuda-functions", "owner"], true),
        (&["--cuda-functions", "off"], false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let _service = Service::start(folder.path(), options);
        let asked = |steps: &[Step]| {
            let heap =
                Heap { steps: steps.to_vec(), ..Heap::new(folder.path(), |_| false, |_| false) };
            heap.ask(open(folder.path()), &CancelToken::new())
        };
        match asked(&calls) {
            Ok((_, groups)) => assert!(may && groups == expected(), "{options:?}"),
            Err(failure) => {
                assert!(!may, "{options:?}: {failure}");
                assert!(
                    failure.message.contains("same(): the GPU service runs no CUDA code"),
                    "{failure}"
                );
                assert!(failure.message.contains("--cuda-functions off"), "{failure}");
                assert!(
                    failure.is_of_the_place() && failure.class == Some(ErrorClass::Unsupported)
                );
            }
        }
        assert_eq!(asked(&[]).unwrap().1, expected(), "{options:?}: a run without functions");
    }
}

/// Before any row is sent: who is refused has lost nothing, and may answer by a twin.
#[test]
fn a_call_of_a_table_that_nobody_runs_is_refused_at_once() {
    let function = CudaTableFunction {
        name: "all".into(),
        table: "t".into(),
        columns: vec![("number".into(), DataType::Int32)],
        parameters: vec![],
        outputs: vec![("number".into(), DataType::Int32)],
        emits: false,
        block_threads: 128,
        body: "if (thread < t.rows) put(thread, t.number[thread]);".into(),
    };
    let call = TableCall { function, parameters: vec![], timeout_ms: 60_000, session: None };
    for (options, cause) in [
        (&[][..], "started with --processor cpu"),
        (&["--cuda-functions", "off"], "started with --cuda-functions off"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let _service = Service::start(folder.path(), options);
        let (rows, token) = (RowSender::default(), CancelToken::new());
        let asked = client::call(open(folder.path()), call.clone(), &rows, &token, &mut |_| true);
        let failure = asked.unwrap_err();
        assert!(failure.message.contains(cause), "{options:?}: {failure}");
        assert_eq!(failure.class, Some(ErrorClass::Unsupported), "{failure}");
        assert!(failure.is_of_the_place() && rows.is_abandoned());
        // Whoever still sends waits for nobody.
        let batch = RecordBatch::new_empty(Schema::empty().into());
        (0..20).for_each(|_| assert!(rows.offer(batch.clone(), PATIENCE).is_ok()));
        open(folder.path());
    }
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
