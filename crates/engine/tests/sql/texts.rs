//! Text files as they are found: broken off, without a header, ragged, in other encodings.

use std::io::Write;
use std::path::Path;

use flate2::{Compression, write::GzEncoder};

use crate::functions::{put, run, session};

/// Rows and notes of a statement.
async fn told(folder: &Path, sql: &str) -> (Vec<String>, String) {
    let (rows, report) =
        run(&session(), folder, sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    (rows, report.notes.join("\n"))
}

async fn rows(folder: &Path, sql: &str) -> Vec<String> {
    told(folder, sql).await.0
}

async fn error(folder: &Path, sql: &str) -> String {
    run(&session(), folder, sql).await.map(|(rows, _)| rows).unwrap_err()
}

/// Each file, and what its error must say.
async fn refuses(dir: &Path, cases: &[(&str, &str, &[&str])]) {
    for (name, text, parts) in cases {
        put(dir, name, text);
        for what in ["count(*)", "*"] {
            let said = error(dir, &format!("select {what} from 'DIR/{name}'")).await;
            let has_all = parts.iter().all(|part| said.contains(part));
            assert!(has_all && said.contains("hint: "), "{name} {text:.40}: {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_breaks_off_is_an_error_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("a,b\n{}", "1,x\n".repeat(50_000));
    let long_json = format!("[{}", "{\"a\":1},\n".repeat(50_000));
    let long_lines = "{\"a\":1}\n".repeat(50_000);
    refuses(
        dir.path(),
        &[
            ("q.csv", "a,b\n1,\"x\n3,4\n", &["q.csv", "line 2", "never closed", "quote => ''"]),
            ("q1.csv", &format!("{long}2,\"x\n3,4\n"), &["line 50002", "never closed"]),
            ("q2.csv", "a,b\n1,\"x\ny\" z\n", &["line 3", "closing quote"]),
            ("q3.csv", "a,b\n1,\"5 inch\n2,\"6 inch\n3,7\n", &["line 3", "closing quote"]),
            ("q4.csv", "\"a,b\n1,2\n3,4\n", &["line 1", "never closed"]),
            ("a.json", "[{\"a\":1},{\"a\":2},", &["a.json", "line 1", "closing ]"]),
            ("b.json", "[{\"a\":1},\n,{\"a\":2}]", &["line 2", "missing before a comma"]),
            ("c.json", "[{\"a\":1},\n{\"a\":2},\n]", &["line 3", "missing before ]"]),
            ("d.json", "[{\"a\":1}\n{\"a\":2}]", &["line 2", "comma is missing"]),
            ("e.json", "[{\"a\":1},\n{\"a\":2", &["line 2", "within an object"]),
            ("f.json", "[{\"a\":1},\n{\"a\":\"x", &["line 2", "within an object"]),
            ("g.json", "[{\"a\":1}\n,{\"a\":2}", &["line 2", "closing ]"]),
            ("h.json", &long_json, &["line 50001", "closing ]"]),
            ("i.jsonl", "{\"a\":1}\n{\"a\":2", &["i.jsonl"]),
            ("j.jsonl", &format!("{long_lines}{{\"a\":"), &["j.jsonl"]),
        ],
    )
    .await;
    // Nothing is missing of these.
    for (name, text, count) in [
        ("whole.json", "[{\"a\":1},{\"a\":2}]", 2),
        ("spaces.json", " [ {\"a\":1} , {\"a\":2} ] \n", 2),
        ("none.json", "[]", 0),
        ("one_line.json", "{\"a\":1}{\"a\":2}\n{\"a\":3}", 3),
        ("spread.json", "{\"a\":\n1}{\"a\":2} {\"a\":3}", 3),
        ("blank.csv", "a,b\n1,\"x\" \n2,\"y\"\r\n3,\"\"\"\"", 3),
    ] {
        put(dir.path(), name, text);
        let found = rows(dir.path(), &format!("select count(*) from 'DIR/{name}'")).await;
        assert_eq!(found, [count.to_string()], "{name}");
    }
    assert_eq!(rows(dir.path(), "select sum(a) from 'DIR/one_line.json'").await, ["6"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_packed_file_loses_no_rows() {
    let dir = tempfile::tempdir().unwrap();
    let pack = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let body: String = (0..9_580).map(|i| format!("tt{i}\ttitle {i}\n")).collect();
    // A quote in the header that nobody closes.
    std::fs::write(dir.path().join("a.tsv.gz"), pack(&format!("id\t\"title\n{body}"))).unwrap();
    let said = error(dir.path(), "select count(*) from 'DIR/a.tsv.gz'").await;
    assert!(said.contains("line 1") && said.contains("quote => ''"), "{said}");
    let count = "select count(*) from read_csv('DIR/a.tsv.gz', quote => '')";
    assert_eq!(rows(dir.path(), count).await, ["9580"]);
    // Of several members, and one that ends early.
    let mut members = pack("id\ttitle\n");
    members.extend(pack(&body));
    std::fs::write(dir.path().join("b.tsv.gz"), &members).unwrap();
    assert_eq!(rows(dir.path(), "select count(*) from 'DIR/b.tsv.gz'").await, ["9580"]);
    std::fs::write(dir.path().join("c.tsv.gz"), &members[..members.len() - 20]).unwrap();
    assert!(error(dir.path(), "select count(*) from 'DIR/c.tsv.gz'").await.contains("c.tsv.gz"));
    let packed = zstd::stream::encode_all(body.as_bytes(), 1).unwrap();
    std::fs::write(dir.path().join("d.tsv.zst"), &packed[..packed.len() - 20]).unwrap();
    assert!(error(dir.path(), "select count(*) from 'DIR/d.tsv.zst'").await.contains("d.tsv.zst"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_values_are_never_cut() {
    let dir = tempfile::tempdir().unwrap();
    for (name, early, late, type_name) in [
        ("day", "2024-01-01", "2024-01-01 10:30:00", "DATE"),
        ("zip", "123", "00123", "BIGINT"),
        ("long", "123", "99999999999999999999", "BIGINT"),
        ("half", "1", "1.5", "BIGINT"),
        ("word", "1.5", "x", "DOUBLE"),
        ("float", "1.5", "99999999999999999999", "DOUBLE"),
        ("fine", "2024-01-01 10:30:00", "2024-01-01 10:30:00.1234567", "TIMESTAMP"),
        ("zone", "2024-01-01 10:30:00", "2024-01-01 10:30:00+02:00", "TIMESTAMP"),
        ("slash", "31/12/2024", "12/31/2024", "DATE"),
    ] {
        let text = format!("k,{name}\n{}7,{late}\n", format!("7,{early}\n").repeat(21_000));
        put(dir.path(), "t.csv", &text);
        let said = error(dir.path(), "select * from 'DIR/t.csv'").await;
        for part in [
            "t.csv: line 21002",
            &format!("column {name}: '{late}' is no {type_name}"),
            &format!("types => {{'{name}': 'VARCHAR'}}"),
        ] {
            assert!(said.contains(part), "{name}: {said}");
        }
        let typed = format!(
            "select {name} from read_csv('DIR/t.csv', types => {{'{name}': 'VARCHAR'}}) where {name} <> '{early}'"
        );
        assert_eq!(rows(dir.path(), &typed).await, [late], "{name}");
    }
    // Fractions of a second that come late fit.
    let text = format!("t\n{}2024-01-01 10:30:00.123456\n", "2024-01-01 10:30:00\n".repeat(21_000));
    put(dir.path(), "t.csv", &text);
    let max = "select max(t) from 'DIR/t.csv'";
    assert_eq!(rows(dir.path(), max).await, ["2024-01-01T10:30:00.123456"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_is_told_from_the_types_of_what_follows() {
    let dir = tempfile::tempdir().unwrap();
    for (text, has_header, expected) in [
        ("1,x\n2,y\n", false, &["1|x", "2|y"][..]),
        ("n,w\n1,x\n", true, &["1|x"]),
        ("n,w\nv,x\n", true, &["v|x"]),
        ("x,x\nv,w\n", false, &["x|x", "v|w"]),
        ("n,w\n", true, &[]),
        ("1,2\n", false, &["1|2"]),
        ("2024-01-01,\n2024-01-02,7\n", false, &["2024-01-01|NULL", "2024-01-02|7"]),
        (",w\n1,2\n", true, &["1|2"]),
        ("zip,n\n00123,1\n", true, &["00123|1"]),
    ] {
        put(dir.path(), "t.csv", text);
        let (found, notes) = told(dir.path(), "select * from 'DIR/t.csv'").await;
        assert_eq!(found, expected, "{text}");
        assert_eq!(notes.contains("t.csv: it has no header"), !has_header, "{text}: {notes}");
    }
    put(dir.path(), "t.csv", "1,x\n2,y\n");
    for (call, expected) in [
        ("read_csv('DIR/t.csv', header => false)", &["1|x", "2|y"][..]),
        ("read_csv('DIR/t.csv', header => true)", &["2|y"]),
    ] {
        let (found, notes) = told(dir.path(), &format!("select * from {call}")).await;
        assert_eq!(found, expected, "{call}");
        assert_eq!(notes, "", "{call}");
    }
    assert_eq!(rows(dir.path(), "select column_1 + 1 from 'DIR/t.csv'").await, ["2", "3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn integers_of_any_length_keep_their_digits() {
    let dir = tempfile::tempdir().unwrap();
    let long = "99999999999999999999";
    put(dir.path(), "a.json", &format!("{{\"a\":1}}\n{{\"a\":{long}}}\n"));
    put(dir.path(), "n.json", &format!("{{\"a\":{{\"b\":[{long},1]}}}}\n"));
    put(dir.path(), "t.csv", &format!("a\n1\n{long}\n"));
    let of =
        |file: &str| format!("select a, arrow_typeof(a) from 'DIR/{file}' order by a desc limit 1");
    let expected = [format!("{long}|Decimal128(38, 0)")];
    assert_eq!(rows(dir.path(), &of("a.json")).await, expected);
    assert_eq!(rows(dir.path(), &of("t.csv")).await, expected);
    assert_eq!(rows(dir.path(), "select a['b'][1] from 'DIR/n.json'").await, [long]);
    // Beside fractions, and behind the first records.
    put(dir.path(), "f.json", &format!("{{\"a\":1.5}}\n{{\"a\":{long}}}\n"));
    let said = error(dir.path(), "select a from 'DIR/f.json'").await;
    assert!(said.contains("record 2: field a") && said.contains("types => {'a': "), "{said}");
    for (early, late) in [("1", long), ("1.5", long), ("1", "1.5")] {
        let text = format!("{}{{\"a\":{late}}}\n", format!("{{\"a\":{early}}}\n").repeat(21_000));
        put(dir.path(), "l.json", &text);
        let said = error(dir.path(), "select a from 'DIR/l.json'").await;
        assert!(said.contains("near line 21001: field a: '"), "{early} {late}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_of_two_kinds_are_named_and_can_be_text() {
    let dir = tempfile::tempdir().unwrap();
    put(
        dir.path(),
        "a.json",
        "{\"k\":1,\"a\":\"x\\n\"}\n{\"k\":2,\"a\":{\"b\":[1, 2]}}\n{\"k\":3}\n{\"a\":null}\n",
    );
    let said = error(dir.path(), "select * from 'DIR/a.json'").await;
    assert!(said.contains("record 2: field a: an object here, and text before"), "{said}");
    assert!(said.contains("types => {'a': 'VARCHAR'}"), "{said}");
    let texts = ["1|x\n", "2|{\"b\":[1, 2]}", "3|NULL", "NULL|NULL"];
    for options in ["types => {'a': 'VARCHAR'}", "columns => {'k': 'BIGINT', 'a': 'VARCHAR'}"] {
        let sql = format!("select k, a from read_json('DIR/a.json', {options})");
        assert_eq!(rows(dir.path(), &sql).await, texts, "{options}");
        let sql = format!("select count(*) from read_json('DIR/a.json', {options})");
        assert_eq!(rows(dir.path(), &sql).await, ["4"], "{options}");
    }
    put(dir.path(), "b.json", "{\"a\":{\"b\":1}}\n{\"a\":{\"b\":[1]}}\n");
    assert!(
        error(dir.path(), "select * from 'DIR/b.json'").await.contains("field a.b: a list here")
    );
    // Late.
    let text = format!("{}{{\"a\":[1]}}\n", "{\"a\":\"x\"}\n".repeat(21_000));
    put(dir.path(), "c.json", &text);
    let said = error(dir.path(), "select * from 'DIR/c.json'").await;
    assert!(said.contains("field 'a'") && said.contains("types => {'a': 'VARCHAR'}"), "{said}");
    // Numbers and texts are texts; nested values have their types.
    put(dir.path(), "d.json", "{\"a\":1}\n{\"a\":\"x\"}\n");
    assert_eq!(rows(dir.path(), "select a from 'DIR/d.json'").await, ["1", "x"]);
    put(dir.path(), "e.json", "{\"a\":{\"b\":1,\"c\":[true,null]},\"d\":[]}\n{\"a\":null}\n");
    let sql = "select a['b'] + 1, a['c'][1], arrow_typeof(a) from 'DIR/e.json'";
    let found = rows(dir.path(), sql).await;
    assert!(
        found[0].starts_with("2|true|Struct(") && found[1].starts_with("NULL|NULL|"),
        "{found:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_found_among_other_lines() {
    let dir = tempfile::tempdir().unwrap();
    for (text, expected, note) in [
        ("hello world\n\na,b\n1,2\n3,4\n", &["1|2", "3|4"][..], "its first 2 lines are left out"),
        ("# by x\na,b\n1,2\n# \"late\n3,4\n", &["1|2", "3|4"], "lines that begin with #"),
        ("a report, of today\na;b\n1;2\n3;4\n", &["1|2", "3|4"], "its first 1 line is left out"),
        ("a,b\n1,2,\n3,4,,\n", &["1|2", "3|4"], ""),
    ] {
        put(dir.path(), "t.csv", text);
        let (found, notes) = told(dir.path(), "select * from 'DIR/t.csv'").await;
        assert_eq!(found, expected, "{text}");
        assert!(notes.contains(note) && notes.is_empty() == note.is_empty(), "{text}: {notes}");
    }
    put(dir.path(), "t.tsv", "##x\n#chrom\tpos\n1\t2\n");
    assert_eq!(rows(dir.path(), "select \"#chrom\" + pos from 'DIR/t.tsv'").await, ["3"]);
    // No record is taken for a line before the table.
    put(dir.path(), "t.csv", "a,b\n1,2\n3,4,5\n6,7,8\n9,10,11\n");
    let said = error(dir.path(), "select * from 'DIR/t.csv'").await;
    for part in
        ["line 3: it has 3 values, and the file 2 columns", "ignore_errors => true", "skip =>"]
    {
        assert!(said.contains(part), "{said}");
    }
    put(dir.path(), "t.csv", "a,b\n1\n3,4\n");
    let said = error(dir.path(), "select count(*) from 'DIR/t.csv'").await;
    assert!(said.contains("line 2") && said.contains("null_padding => true"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_read_what_does_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "ragged.csv", "a,b\n1,2,3\n4\n5,6\n");
    put(dir.path(), "comments.csv", "% \"x\na,b\n1,2\n%c\n3,4\n");
    let late = format!("a,b\n{}x,2\n5\n", "1,1\n".repeat(21_000));
    put(dir.path(), "late.csv", &late);
    put(dir.path(), "comma.csv", "a;b\n1,5;2\n-0,25;3\n");
    put(
        dir.path(),
        "days.csv",
        "d,e,t\n01/02/2024,13.01.2024,02.01.2024 10:30\n03/02/2024,14.01.2024,03.01.2024 11:00\n",
    );
    put(dir.path(), "years.csv", "d\n240131\n240201\n");
    std::fs::write(dir.path().join("latin.csv"), b"a,b\ncaf\xe9,1\n").unwrap();
    let wide = |bytes: fn(u16) -> [u8; 2], mark: bool| {
        let text = if mark { "\u{feff}a,b\ncafé,1\n" } else { "a,b\ncafé,1\n" };
        text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>()
    };
    std::fs::write(dir.path().join("le.csv"), wide(u16::to_le_bytes, true)).unwrap();
    std::fs::write(dir.path().join("be.csv"), wide(u16::to_be_bytes, true)).unwrap();
    std::fs::write(dir.path().join("bare.csv"), wide(u16::to_le_bytes, false)).unwrap();
    for (sql, expected) in [
        (
            "from read_csv('DIR/ragged.csv', null_padding => true)",
            &["1|2|3", "4|NULL|NULL", "5|6|NULL"][..],
        ),
        ("from read_csv('DIR/ragged.csv', ignore_errors => true)", &["5|6"]),
        ("from read_csv('DIR/comments.csv', comment => '%')", &["1|2", "3|4"]),
        (
            "select count(*), sum(a) from read_csv('DIR/late.csv', ignore_errors => true)",
            &["21000|21000"],
        ),
        ("select count(*) from read_csv('DIR/late.csv', ignore_errors => true)", &["21000"]),
        ("select a * 2, b from read_csv('DIR/comma.csv', decimal_separator => ',')", &["3.0|2", "-0.5|3"]),
        (
            "select arrow_typeof(d), e, t from 'DIR/days.csv'",
            &["Utf8|2024-01-13|02.01.2024 10:30", "Utf8|2024-01-14|03.01.2024 11:00"],
        ),
        (
            "select d, t from read_csv('DIR/days.csv', dateformat => '%d/%m/%Y', timestampformat => '%d.%m.%Y %H:%M')",
            &["2024-02-01|2024-01-02T10:30:00", "2024-02-03|2024-01-03T11:00:00"],
        ),
        (
            "from read_csv('DIR/years.csv', dateformat => '%y%m%d', types => {'d': 'DATE'})",
            &["2024-01-31", "2024-02-01"],
        ),
        ("select a from read_csv('DIR/latin.csv', encoding => 'latin-1')", &["café"]),
        ("select a, b + 1 from 'DIR/le.csv'", &["café|2"]),
        ("select a from 'DIR/be.csv'", &["café"]),
        ("select a from read_csv('DIR/bare.csv', encoding => 'utf-16')", &["café"]),
        (
            "select a, regexp_replace(filename, '.*/', '') from read_csv('DIR/c*.csv', filename => true, delim => ';',
             skip => 0, comment => '', header => true, all_varchar => true) where filename like '%comma.csv'",
            &["1,5|comma.csv", "-0,25|comma.csv"],
        ),
        (
            "select regexp_replace(f, '.*/', '') from read_csv('DIR/comma.csv', filename => 'f') group by f",
            &["comma.csv"],
        ),
    ] {
        assert_eq!(rows(dir.path(), sql).await, expected, "{sql}");
    }
    let (_, notes) =
        told(dir.path(), "select count(*) from read_csv('DIR/late.csv', ignore_errors => true)")
            .await;
    assert!(notes.contains("late.csv: 2 records that do not fit left out"), "{notes}");
    let said = error(dir.path(), "select * from 'DIR/latin.csv'").await;
    assert!(
        said.contains("line 2 is not UTF-8") && said.contains("encoding => 'latin-1'"),
        "{said}"
    );
    for (options, part) in [
        ("encoding => 'klingon'", "encoding: klingon is not known"),
        ("dateformat => '%Q'", "no format of dates"),
        ("decimal_separator => ';'", "neither ',' nor '.'"),
        ("filename => 'a'", "there is a column a"),
    ] {
        let said = error(dir.path(), &format!("from read_csv('DIR/comma.csv', {options})")).await;
        assert!(said.contains(part), "{options}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_named_by_patterns_folders_and_pipes() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "x1.csv", "a\n1\n");
    put(dir.path(), "x2.csv", "a\n2\n");
    assert_eq!(rows(dir.path(), "select sum(a) from 'DIR/x*.csv'").await, ["3"]);
    let said = error(dir.path(), "select sum(a) from 'DIR/y*.csv'").await;
    assert!(said.contains("y*.csv") && said.contains("no file is called so"), "{said}");
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let to = pipe.clone();
    let writer = std::thread::spawn(move || std::fs::write(to, "a,b\n1,2\n3,\"x\n"));
    let said = error(dir.path(), "select * from read_csv('DIR/pipe')").await;
    writer.join().unwrap().unwrap();
    assert!(said.contains("/pipe: line 3"), "{said}");
    // Read once; what came is there for the next query.
    let quoted = "select count(*), min(a) from read_csv('DIR/pipe', quote => '')";
    assert_eq!(rows(dir.path(), quoted).await, ["2|1"]);
    let said = error(dir.path(), "select * from 'DIR/pipe'").await;
    assert!(said.contains("read_csv('"), "{said}");
}
