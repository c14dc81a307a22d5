//! `read_csv(..)` and its like: files read as a call says.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::util::display::array_value_to_string;
use headrace_engine::{Processor, QueryReport, Session, SessionOptions, Settings};

use crate::tables;

pub fn session() -> Session {
    let settings = Settings { processor: Processor::Cpu, ..Settings::default() };
    Session::new(SessionOptions { settings, ..SessionOptions::default() }).unwrap()
}

/// Rows as text, NULL as it is; `DIR` stands for a folder.
pub async fn run(
    session: &Session,
    folder: &Path,
    sql: &str,
) -> Result<(Vec<String>, QueryReport), String> {
    let sql = sql.replace("DIR", &folder.display().to_string());
    let query = session.sql(&sql).await.map_err(|e| e.to_string())?;
    let (batches, report) = query.collect().await.map_err(|e| e.to_string())?;
    let value = |column: &ArrayRef, row: usize| match column.is_null(row) {
        true => "NULL".to_string(),
        false => array_value_to_string(column, row).unwrap(),
    };
    let row = |batch: &RecordBatch, row: usize| {
        batch.columns().iter().map(|c| value(c, row)).collect::<Vec<_>>().join("|")
    };
    let rows = batches.iter().flat_map(|b| (0..b.num_rows()).map(move |i| row(b, i))).collect();
    Ok((rows, report))
}

pub fn put(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn put_arrow(folder: &Path, path: &str, a: i64) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let a: ArrayRef = Arc::new(Int64Array::from(vec![a]));
    tables::write(&path, &RecordBatch::try_from_iter([("a", a)]).unwrap(), 10, true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_say_how_separated_values_lie() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    put(dir.path(), "semi.txt", "a;b\n1;x,y\n2;'p;q'\n-;\n");
    put(dir.path(), "bare.dat", "1,2020-01-02\n2,\n");
    put(dir.path(), "top.csv", "a report\nof today, \"\na,b\n1,2\n");
    put(dir.path(), "escaped.csv", "a,b\n1,\"x\\\",\n\\\\\"\n");
    put(dir.path(), "quotes.csv", "a\tb\n1\t\"x\n");
    put(dir.path(), "big.csv", "a\n1\n2147483648\n");
    let packed = zstd::stream::encode_all(&b"a\n7\n"[..], 1).unwrap();
    std::fs::write(dir.path().join("packed.bin"), packed).unwrap();
    for (sql, expected) in [
        (
            "select a, b from read_csv('DIR/semi.txt', delim => ';', quote => '''', nullstr => '-')",
            &["1|x,y", "2|p;q", "NULL|NULL"][..],
        ),
        (
            "select typeof, count(*) from (select arrow_typeof(a) as typeof from
             read_csv('DIR/semi.txt', sep = ';', quote := '''', nullstr = ['-', 'NA'])) group by 1",
            &["Int64|3"],
        ),
        ("from read_csv('DIR/bare.dat', header => false)", &["1|2020-01-02", "2|NULL"]),
        (
            "select n + 1, extract(year from day) from
             read_csv('DIR/bare.dat', header = false, names = ['n', 'day']) order by 1",
            &["2|2020", "3|NULL"],
        ),
        (
            "select arrow_typeof(n), arrow_typeof(d) from read_csv('DIR/bare.dat', header => false,
             columns => {'n': 'DECIMAL(9,2)', 'd': 'VARCHAR'}) limit 1",
            &["Decimal128(9, 2)|Utf8"],
        ),
        ("select a + b from read_csv('DIR/top.csv', skip => 2)", &["3"]),
        ("select b from read_csv('DIR/escaped.csv', escape => '\\')", &["x\",\n\\"]),
        ("select b from read_csv('DIR/quotes.csv', quote => '')", &["\"x"]),
        (
            "select a || '!' from read_csv('DIR/big.csv', all_varchar => true)",
            &["1!", "2147483648!"],
        ),
        (
            "select arrow_typeof(a), a from read_csv('DIR/big.csv', types => {'a': 'DOUBLE'}) limit 1",
            &["Float64|1.0"],
        ),
        ("select a from read_csv('DIR/packed.bin', compression => 'zstd')", &["7"]),
        ("with t as (select * from read_csv('DIR/big.csv')) select sum(a) from t", &["2147483649"]),
        (
            "select count(*) from read_csv('DIR/big.csv') x join read_csv('DIR/big.csv') y on x.a = y.a",
            &["2"],
        ),
    ] {
        let (found, _) = run(&session, dir.path(), sql).await.unwrap();
        assert_eq!(found, expected, "{sql}");
    }
    let (summary, _) =
        run(&session, dir.path(), "summarize read_csv('DIR/big.csv')").await.unwrap();
    assert!(summary[0].starts_with("a|BIGINT|1|2147483648"), "{summary:?}");
    let copy = "copy (select a from read_csv('DIR/big.csv')) to 'DIR/copied.parquet'";
    assert_eq!(run(&session, dir.path(), copy).await.unwrap().0, ["2"]);
    let copied = run(&session, dir.path(), "select max(a) from read_parquet('DIR/copied.parquet')");
    assert_eq!(copied.await.unwrap().0, ["2147483648"]);
}

/// Quotes and escapes decide where blocks of a long file end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_files_are_cut_as_their_quotes_say() {
    let dir = tempfile::tempdir().unwrap();
    // Most lines end within a value.
    let filler = "x\n".repeat(100);
    let rows = 60_000;
    let text: String = (0..rows).map(|i| format!("{i};'{filler}\n\\'\n{i}'\n")).collect();
    put(dir.path(), "long.csv", &format!("not\nthis\na;b\n{text}"));
    let sql =
        "select count(*), sum(a), min(length(b)), max(b like '%''%') from read_csv('DIR/long.csv',
               delim => ';', quote => '''', escape => '\\', skip => 2)";
    let (found, _) = run(&session(), dir.path(), sql).await.unwrap();
    assert_eq!(found, [format!("{rows}|{}|{}|true", (0..rows).sum::<usize>(), 204)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_of_json_can_be_said() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "t.log", "{\"a\": 1, \"b\": \"2020-01-02\"}\n{\"a\": 2, \"c\": 3}\n");
    let session = session();
    for (sql, expected) in [
        ("select a, b from read_json('DIR/t.log') order by a", &["1|2020-01-02", "2|NULL"][..]),
        (
            "select a || 'x', extract(year from b) from read_json('DIR/t.log',
             types => {'a': 'VARCHAR', 'b': 'DATE'}) order by 1",
            &["1x|2020", "2x|NULL"],
        ),
        (
            "select * from read_json('DIR/t.log', columns => {'c': 'BIGINT', 'd': 'DOUBLE'}) order by c",
            &["3|NULL", "NULL|NULL"],
        ),
    ] {
        assert_eq!(run(&session, dir.path(), sql).await.unwrap().0, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_are_those_of_paths_that_are_not_there() {
    let dir = tempfile::tempdir().unwrap();
    for (path, a) in [
        ("x/1.arrow", 1),
        ("x/2.arrow", 2),
        ("x/.3.arrow", 3),
        ("x/[12].arrow", 4),
        ("y/k=5/1.arrow", 5),
        ("y/k=6/1.arrow", 6),
        ("y/k=6/deep/7.dat", 7),
    ] {
        put_arrow(dir.path(), path, a);
    }
    let session = session();
    for (call, expected) in [
        ("read_arrow('DIR/x/*.arrow')", "1|2|4"),
        ("read_arrow('DIR/x/?.arrow')", "1|2"),
        ("read_arrow('DIR/x/[12].arrow')", "4"),
        ("read_arrow('DIR/x/[1-3].arrow')", "1|2"),
        ("read_arrow(['DIR/x/2.arrow', 'DIR/x/1.arrow', 'DIR/x/?.arrow'])", "1|2"),
        ("read_arrow('DIR/**/*.dat')", "7"),
        ("read_arrow('DIR/y/')", "5|6"),
        ("read_arrow('DIR/y/*/1.arrow')", "5|6"),
    ] {
        let sql = format!("select a from {call} where a > 0 order by a");
        let (found, report) = run(&session, dir.path(), &sql).await.unwrap();
        assert_eq!(found.join("|"), expected, "{call}");
        assert_eq!(report.processor, "cpu", "{call} streams");
    }
    let keys = "select a, k from read_arrow('DIR/y/k=*/1.arrow') where k > 5";
    assert_eq!(run(&session, dir.path(), keys).await.unwrap().0, ["6|6"]);
    let none = "select * from read_arrow('DIR/y/k=6/1.arrow')";
    assert_eq!(run(&session, dir.path(), none).await.unwrap().0, ["6"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_see_the_files_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    put_arrow(dir.path(), "1.arrow", 1);
    let session = session();
    let sql = "select sum(a) from read_arrow('DIR/*.arrow') where a > 0";
    assert_eq!(run(&session, dir.path(), sql).await.unwrap().0, ["1"]);
    assert!(run(&session, dir.path(), sql).await.unwrap().1.plan_cached, "nothing has changed");
    put_arrow(dir.path(), "2.arrow", 10);
    let (found, report) = run(&session, dir.path(), sql).await.unwrap();
    assert_eq!((found[0].as_str(), report.plan_cached), ("11", false));
    put_arrow(dir.path(), "1.arrow", 100);
    assert_eq!(run(&session, dir.path(), sql).await.unwrap().0, ["110"]);
    std::fs::remove_file(dir.path().join("2.arrow")).unwrap();
    assert_eq!(run(&session, dir.path(), sql).await.unwrap().0, ["100"]);
    // More calls than are kept.
    for number in 0..300 {
        let sql =
            format!("select a + {number} from read_arrow(['DIR/1.arrow', 'DIR/{number}.arrow'])");
        let found = run(&session, dir.path(), &sql).await;
        assert_eq!(found.is_ok(), number == 1, "{number}");
    }
    assert_eq!(run(&session, dir.path(), sql).await.unwrap().0, ["100"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_call_is_said() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "t.csv", "a,b\n1,2\nx,y\n");
    put(dir.path(), "u.csv", "a,b\n1,2\n");
    let session = session();
    for (sql, parts) in [
        ("from read_csv()", &["read_csv: it names no file", "hint: "][..]),
        ("from read_csv('DIR/none.csv')", &["none.csv"]),
        ("from read_csv('DIR/none*.csv')", &["none*.csv", "no file is called so"]),
        (
            "from read_csv('DIR/t.csv', delimiters => ';')",
            &["delimiters", "no such option", "delim, "],
        ),
        ("from read_csv('DIR/t.csv', ';')", &["has no name", "delim => ';'"]),
        ("from read_csv('DIR/t.csv', delim => '; ')", &["delim", "is not one byte"]),
        ("from read_csv('DIR/t.csv', header => 'yes')", &["header", "neither true nor false"]),
        ("from read_csv('DIR/t.csv', types => {'c': 'INT'})", &["t.csv", "no column c", "a, b"]),
        ("from read_csv('DIR/t.csv', types => {'a': 'INT) or (1'})", &["no type of SQL"]),
        ("from read_csv('DIR/t.csv', types => {'a': 'INT[]'})", &["cannot be INT[]"]),
        ("from read_csv('DIR/t.csv', types => {'a': 'INT'})", &["t.csv", "line 3: column a"]),
        (
            "from read_csv('DIR/t.csv', columns => {'a': 'INT'})",
            &["t.csv", "2 columns, and 1 are named"],
        ),
        ("from read_csv('DIR/t.csv', skip => -1)", &["skip", "no constant"]),
        ("from read_csv('DIR/t.csv', union_by_name => false)", &["cannot be turned off"]),
        ("from read_parquet('DIR/t.csv')", &["t.csv"]),
        ("from read_parquet('DIR/t.csv', delim => ',')", &["delim", "none but paths"]),
        ("from read_csv('DIR/***.csv')", &["look at the pattern"]),
    ] {
        let error = run(&session, dir.path(), sql).await.map(|(rows, _)| rows).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{sql}: {error}");
    }
}
