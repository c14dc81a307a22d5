//! Tables and views of a home: what statements make and change there lasts.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, LargeStringArray, RecordBatch};
use datafusion::arrow::ipc::writer::FileWriter;
use futures::future::join_all;
use headrace_engine::catalog::{Found, Reach};
use headrace_engine::{RunnerOptions, Session};

use crate::facade::{cpu_session, rows};

/// A session whose home is a folder, and what it found there.
async fn opened(home: &Path) -> (Session, Found) {
    let session = cpu_session(RunnerOptions::default());
    let found = session.register_place(home).await.unwrap();
    session.keep_tables_in(home);
    (session, found)
}

/// The error of a statement, planned or run; nothing if there is none.
async fn failed(session: &Session, sql: &str) -> String {
    let done = match session.sql(sql).await {
        Ok(query) => query.collect().await.err(),
        Err(error) => Some(error),
    };
    done.map(|error| error.to_string()).unwrap_or_default()
}

/// The one value of a query.
async fn value(session: &Session, sql: &str) -> String {
    let shown = rows(session, sql).await;
    let line = shown.lines().nth(3).unwrap_or_default();
    line.trim_matches(['|', ' ']).to_string()
}

/// What lies in a folder, hidden or not, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_of_a_home_last() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (session, _) = opened(home).await;
    for sql in [
        "CREATE TABLE t AS SELECT 1 AS a UNION ALL SELECT 2",
        "CREATE VIEW sums AS SELECT sum(a) AS s FROM t",
        // Its name comes before that of the view that it names.
        "CREATE VIEW again AS SELECT s + 1 AS s FROM sums",
        "CREATE VIEW gone AS SELECT 1",
        "DROP VIEW gone",
        "CREATE OR REPLACE VIEW sums AS SELECT sum(a) * 10 AS s FROM t",
    ] {
        rows(&session, sql).await;
    }
    for (sql, cause) in [
        ("CREATE VIEW sums AS SELECT 2", "sums"),
        ("CREATE OR REPLACE VIEW t AS SELECT 1 AS a", "is a table"),
        ("CREATE OR REPLACE VIEW sums AS SELECT * FROM sums", "read itself"),
        ("CREATE OR REPLACE VIEW sums AS SELECT * FROM again", "read itself"),
    ] {
        assert!(failed(&session, sql).await.contains(cause), "{sql}");
    }
    // Views of other schemas have no file, and nothing to do with those of this one.
    rows(&session, "CREATE SCHEMA other").await;
    rows(&session, "CREATE VIEW other.sums AS SELECT 5 AS s").await;
    assert!(rows(&session, "SELECT s FROM sums").await.contains("| 30 |"));
    rows(&session, "DROP VIEW other.sums").await;
    rows(&session, "DROP VIEW IF EXISTS elsewhere.sums").await;
    assert!(home.join("sums.view.sql").exists());
    // Somebody else has made one since.
    std::fs::write(home.join("theirs.view.sql"), "CREATE VIEW theirs AS SELECT 8 AS a").unwrap();
    assert!(failed(&session, "CREATE VIEW theirs AS SELECT 9").await.contains("there is a file"));
    std::fs::remove_file(home.join("theirs.view.sql")).unwrap();
    assert!(!home.join("gone.view.sql").exists());

    let (session, found) = opened(home).await;
    assert_eq!((found.views.len(), found.unknown.len()), (2, 0));
    assert!(rows(&session, "SELECT s FROM again").await.contains("| 31 |"));
    assert!(rows(&session, "SHOW COLUMNS FROM again").await.contains("| s "));
    rows(&session, "DROP VIEW again").await;

    // What others have put there: another statement, no text, the name of a table, a table that is not there.
    std::fs::write(home.join("broken.view.sql"), "DROP TABLE t").unwrap();
    std::fs::write(home.join("binary.view.sql"), [0xff, 0xfe]).unwrap();
    std::fs::write(home.join("t.view.sql"), "CREATE VIEW t AS SELECT 7").unwrap();
    std::fs::write(home.join("lost.view.sql"), "CREATE VIEW lost AS SELECT * FROM nowhere")
        .unwrap();
    std::fs::write(home.join("round.view.sql"), "CREATE VIEW round AS SELECT * FROM round")
        .unwrap();
    std::os::unix::fs::symlink("/dev/zero", home.join("endless.view.sql")).unwrap();
    std::fs::create_dir(home.join("below")).unwrap();
    std::fs::write(home.join("below/sums.view.sql"), "CREATE VIEW sums AS SELECT 1 AS s").unwrap();
    let (session, found) = opened(home).await;
    assert_eq!((found.views.len(), found.unknown.len()), (4, 4), "{found:?}");
    assert!(failed(&session, "SELECT count(*) FROM round").await.contains("reads itself"));
    assert!(failed(&session, "SELECT * FROM again").await.contains("again"));
    assert!(failed(&session, "SELECT * FROM broken").await.contains("CREATE VIEW"));
    assert!(failed(&session, "SELECT * FROM lost").await.contains("nowhere"));
    assert!(rows(&session, "SELECT count(*) FROM t").await.contains("| 2 "));
    assert!(rows(&session, "SELECT s FROM sums").await.contains("| 30 |"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_changed_in_a_home_last() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (session, _) = opened(home).await;
    for (sql, count) in [
        ("CREATE TABLE made (a BIGINT, b VARCHAR, c DECIMAL(9, 2) NOT NULL)", ""),
        ("INSERT INTO made VALUES (1, 'one', 1.5), (2, NULL, 2.25)", "2"),
        ("INSERT INTO made (c, a) SELECT 7, a + 2 FROM made", "2"),
        ("INSERT INTO made SELECT * FROM made WHERE a > 100", "0"),
        ("CREATE TABLE copied AS SELECT * FROM made", ""),
        ("INSERT INTO copied VALUES (5, 'five', 5)", "1"),
        ("UPDATE copied SET b = b || '!', c = c + 1 WHERE a % 2 = 1", "3"),
        ("UPDATE copied AS t SET a = -t.a WHERE t.b IS NULL", "3"),
        ("UPDATE copied SET a = 1 / (a - 2) WHERE a > 100", "0"),
        ("DELETE FROM made WHERE b = 'one'", "1"),
        ("DELETE FROM made WHERE a IN (SELECT a + 10 FROM made)", "0"),
        ("CREATE TABLE cased AS SELECT 1 AS \"Id\", 2 AS b", ""),
        ("INSERT INTO cased (B, id) VALUES (NULL, 7)", "1"),
        ("UPDATE Cased SET ID = NULL, B = 3 WHERE Id = 7", "1"),
        ("CREATE TABLE emptied AS SELECT 1 AS a", ""),
        ("INSERT INTO emptied VALUES (2), (3)", "2"),
        ("TRUNCATE TABLE emptied", "3"),
        ("INSERT INTO emptied VALUES (9)", "1"),
        ("CREATE TABLE again (a INT)", ""),
        ("INSERT INTO again VALUES (1)", "1"),
        ("CREATE OR REPLACE TABLE again AS SELECT 4 AS z", ""),
        ("INSERT INTO again VALUES (5)", "1"),
        ("CREATE TABLE IF NOT EXISTS again (b INT)", ""),
    ] {
        let done = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let (batches, _) = done.collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let shown = datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap();
        let counted =
            shown.to_string().lines().nth(3).map(|line| line.trim_matches(['|', ' ']).to_string());
        assert_eq!(counted.as_deref().unwrap_or_default(), count, "{sql}: {shown}");
    }
    let (fresh, found) = opened(home).await;
    assert_eq!((found.tables.len(), found.unknown.len()), (5, 0), "{found:?}");
    rows(&session, "CREATE TEMP TABLE fleeting (a INT PRIMARY KEY)").await;
    rows(&session, "INSERT INTO fleeting VALUES (1)").await;
    assert!(!home.join("fleeting.arrow").exists());
    for session in [&session, &fresh] {
        let all =
            "SELECT string_agg(coalesce(a, 0) || coalesce(b, '-') || c, ' ' ORDER BY abs(a)) FROM";
        assert_eq!(value(session, &format!("{all} made")).await, "2-2.25 3-7.00 4-7.00");
        let copied = "1one!2.50 -2-2.25 -3-8.00 -4-7.00 5five!6.00";
        assert_eq!(value(session, &format!("{all} copied")).await, copied);
        assert_eq!(value(session, "SELECT sum(a) FROM emptied").await, "9");
        assert_eq!(value(session, "SELECT sum(z) FROM again").await, "9");
        let cased = "SELECT sum(id) || ' ' || count(id) || ' ' || sum(b) FROM cased";
        assert_eq!(value(session, cased).await, "1 1 5");
    }
    // Whole files in a home are tables of pipelines.
    let (_, report) =
        fresh.sql("SELECT sum(c) FROM made WHERE a > 0").await.unwrap().collect().await.unwrap();
    assert_eq!(report.processor.to_lowercase(), "cpu", "{report:?}");
}

/// Columns that are made of a query take NULL, and are found in any case, in memory as in files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_in_memory_are_changed_alike() {
    let session = cpu_session(RunnerOptions::default());
    for sql in [
        "CREATE TABLE cased AS SELECT 1 AS \"Id\", 2 AS b",
        "INSERT INTO cased (B, id) VALUES (NULL, 7)",
        "UPDATE Cased SET ID = NULL, B = 3 WHERE Id = 7",
    ] {
        rows(&session, sql).await;
    }
    let cased = "SELECT sum(id) || ' ' || count(id) || ' ' || sum(b) FROM cased";
    assert_eq!(value(&session, cased).await, "1 1 5");
    assert!(failed(&session, "UPDATE cased SET \"ID\" = 1").await.contains("ID"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_fails_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (session, _) = opened(home).await;
    rows(&session, "CREATE TABLE t (a INT NOT NULL)").await;
    rows(&session, "INSERT INTO t SELECT value FROM generate_series(1, 100000)").await;
    let before = (names(home), names(&home.join("t.arrow")));
    for (sql, cause) in [
        ("INSERT INTO t SELECT 1 / (value - 99999) FROM generate_series(1, 100000)", "zero"),
        ("INSERT INTO t VALUES (NULL)", "null"),
        ("INSERT INTO t VALUES (5000000000)", ""),
        ("UPDATE t SET a = 1 / (a - 99999)", "zero"),
        ("UPDATE t SET a = NULL WHERE a = 7", "null"),
        ("DELETE FROM t WHERE 1 / (a - 99999) > 5", "zero"),
        ("DELETE FROM t WHERE a > 5 LIMIT 1", "LIMIT"),
        ("UPDATE t SET a = u.a FROM t AS u WHERE t.a = u.a", "not supported"),
        ("CREATE TABLE keyed (a INT PRIMARY KEY)", "no constraints"),
        ("CREATE TABLE t (b INT)", "there is a table t"),
        ("CREATE TABLE \"../t\" (b INT)", "no file can be called"),
    ] {
        let error = failed(&session, sql).await;
        assert!(
            !error.is_empty() && error.to_lowercase().contains(&cause.to_lowercase()),
            "{sql}: {error}"
        );
        assert_eq!((names(home), names(&home.join("t.arrow"))), before, "{sql}");
    }
    assert_eq!(value(&session, "SELECT count(*) FROM t").await, "100000");
    // What it read is not the table any more.
    let change = session.sql("DELETE FROM t WHERE a < 3").await.unwrap();
    rows(&session, "INSERT INTO t VALUES (1), (2)").await;
    let error = change.collect().await.unwrap_err().to_string();
    assert!(error.contains("meanwhile"), "{error}");
    assert_eq!(value(&session, "SELECT count(*) FROM t WHERE a < 3").await, "4");
    // Files that are not the table's own are not taken away.
    std::fs::write(home.join("t.arrow/notes.txt"), "mine").unwrap();
    assert!(failed(&session, "DELETE FROM t WHERE a < 3").await.contains("notes.txt"));
    assert!(home.join("t.arrow/notes.txt").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lies_in_a_home_is_taken_care_of() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (session, _) = opened(home).await;
    let mode = |path: &str| home.join(path).metadata().unwrap().permissions().mode() & 0o777;
    // Each row is changed as a whole, or not.
    rows(&session, "CREATE TABLE t AS SELECT value AS a, value AS b FROM generate_series(1, 1000)")
        .await;
    std::fs::set_permissions(home.join("t.arrow"), Permissions::from_mode(0o600)).unwrap();
    rows(&session, "UPDATE t SET a = -1, b = -1 WHERE random() < 0.5").await;
    assert_eq!(value(&session, "SELECT count(*) FROM t WHERE (a < 0) <> (b < 0)").await, "0");
    assert_eq!(mode("t.arrow"), 0o600);
    rows(&session, "INSERT INTO t VALUES (1, 2)").await;
    assert_eq!((mode("t.arrow"), mode("t.arrow/0.arrow")), (0o700, 0o600));
    assert_eq!(mode(&format!("t.arrow/{}", names(&home.join("t.arrow"))[1])), 0o600);
    rows(&session, "DELETE FROM t WHERE a < 0").await;
    assert_eq!((mode("t.arrow"), mode("t.arrow/0.arrow")), (0o700, 0o600));
    // Another table has taken its place.
    let change = session.sql("INSERT INTO t VALUES (3, 4)").await.unwrap();
    rows(&session, "CREATE OR REPLACE TABLE t AS SELECT 'x' AS c").await;
    assert!(change.collect().await.unwrap_err().to_string().contains("meanwhile"));
    assert_eq!(value(&session, "SELECT c FROM t").await, "x");
    // What others have begun to write is no part of it, and stays.
    std::fs::write(home.join("t.arrow/begun.arrow"), "").unwrap();
    assert!(failed(&session, "DELETE FROM t WHERE c = 'x'").await.contains("begun.arrow"));
    assert!(home.join("t.arrow/begun.arrow").exists());
    // A dropped table's files stay.
    rows(&session, "DROP TABLE t").await;
    assert!(failed(&session, "CREATE TABLE t (a INT)").await.contains("which DROP TABLE keeps"));
    rows(&session, "CREATE TABLE IF NOT EXISTS t (a INT)").await;
    assert_eq!(value(&session, "SELECT c FROM t").await, "x");
    // Rows would have another type than those of somebody else's file.
    let text: ArrayRef = Arc::new(LargeStringArray::from(vec!["theirs"]));
    let theirs = RecordBatch::try_from_iter([("s", text)]).unwrap();
    let file = std::fs::File::create(home.join("theirs.arrow")).unwrap();
    let mut writer = FileWriter::try_new(file, &theirs.schema()).unwrap();
    writer.write(&theirs).unwrap();
    writer.finish().unwrap();
    let (session, _) = opened(home).await;
    assert!(
        failed(&session, "INSERT INTO theirs VALUES ('x')").await.contains("is written as Utf8")
    );
    rows(&session, "CREATE OR REPLACE TABLE theirs AS FROM theirs").await;
    rows(&session, "INSERT INTO theirs VALUES ('x')").await;
    assert_eq!(value(&session, "SELECT count(*) FROM theirs").await, "2");
    for (sql, cause) in [
        ("CREATE TABLE \"a=b\" (a INT)", "is a partition"),
        ("EXPLAIN INSERT INTO theirs VALUES ('y')", "EXPLAIN of a change"),
        ("EXPLAIN ANALYZE DELETE FROM theirs", "EXPLAIN of a change"),
    ] {
        assert!(failed(&session, sql).await.contains(cause), "{sql}");
    }
    rows(&session, "CREATE SCHEMA other").await;
    rows(&session, "CREATE TABLE other.theirs (a INT)").await;
    assert_eq!(value(&session, "SELECT count(*) FROM theirs").await, "2");
}

/// Links lead no further than a session may write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_stay_within_reach() {
    let (folder, beyond) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (other, _) = opened(beyond.path()).await;
    rows(&other, "CREATE TABLE far AS SELECT 1 AS a").await;
    std::os::unix::fs::symlink(beyond.path().join("far.arrow"), folder.path().join("far.arrow"))
        .unwrap();
    let (session, _) = opened(folder.path()).await;
    session.restrict_to(Reach::below(&[folder.path().to_path_buf()]));
    assert_eq!(value(&session, "SELECT a FROM far").await, "1");
    for sql in [
        "INSERT INTO far VALUES (2)",
        "TRUNCATE TABLE far",
        "CREATE OR REPLACE TABLE far AS SELECT 3 AS a",
    ] {
        assert!(!failed(&session, sql).await.is_empty(), "{sql}");
    }
    assert_eq!(value(&other, "SELECT sum(a) FROM far").await, "1");
}

/// Who waits for others no longer changes nothing when they are done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_given_up_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let (session, _) = opened(folder.path()).await;
    rows(&session, "CREATE TABLE t (a INT)").await;
    let lock = std::fs::File::open(folder.path()).unwrap();
    lock.lock().unwrap();
    rows(&session, "SET statement_timeout = '200ms'").await;
    for sql in ["INSERT INTO t VALUES (1)", "CREATE TABLE u AS SELECT 1 AS a"] {
        assert!(failed(&session, sql).await.contains("statement_timeout"), "{sql}");
    }
    drop(lock);
    rows(&session, "SET statement_timeout = 0").await;
    rows(&session, "INSERT INTO t VALUES (2)").await;
    assert_eq!(value(&session, "SELECT sum(a) FROM t").await, "2");
    assert_eq!(names(folder.path()), ["t.arrow"]);
}

/// A file becomes a folder once, whoever comes first; rows of all are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_loses_rows_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    // Two programs at one folder, each with several sessions.
    let programs = [opened(home).await.0, opened(home).await.0];
    rows(&programs[0], "CREATE TABLE t AS SELECT 0 AS a").await;
    programs[1].register_place(home).await.unwrap();
    let added = (1..=40_i64).map(|number| {
        let session = programs[number as usize % 2].beside();
        tokio::spawn(async move {
            rows(&session, &format!("INSERT INTO t VALUES ({number})")).await;
        })
    });
    for done in join_all(added).await {
        done.unwrap();
    }
    for session in &programs {
        assert_eq!(
            value(session, "SELECT count(DISTINCT a) || ' ' || sum(a) FROM t").await,
            "41 820"
        );
    }
    let files = names(&home.join("t.arrow"));
    assert_eq!((files.len(), files[0].as_str()), (41, "0.arrow"), "{files:?}");
    assert_eq!(names(home), ["t.arrow"]);
}
