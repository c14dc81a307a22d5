//! Queries of many shapes: what pipelines answer is what the planner's own operators do, and nothing is left to them.

use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::ipc::CompressionType;
use datafusion::arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use headrace_engine::{Processor, QueryReport, RunnerOptions, Session, SessionOptions, Settings};
use headrace_ir::{Pipeline, Sink};

use crate::tables;

/// Texts.
const TEXTS: &[&str] = &[
    "substr(text, 2)",
    "substr(text, 2, 3)",
    "substr(text, -1, 3)",
    "left(text, 2)",
    "left(text, -2)",
    "right(text, 2)",
    "right(text, -2)",
    "trim(text)",
    "btrim(text, 'ae')",
    "ltrim(text, 'aeb')",
    "rtrim(text, 'aeb')",
    "replace(text, 'p', '--')",
    "replace(text, 'a', '')",
    "strpos(text, 'p')",
    "strpos(text, '')",
    "position('an' in text)",
    "starts_with(text, 'a')",
    "reverse(text)",
    "upper(text)",
    "lower(text)",
    "lower(upper(text)) = lower(text)",
    "text || '!' || kind",
    "concat(text, '-', kind)",
    "upper(kind)",
    "substr(kind, 1, 2)",
    "length(text) + length(kind)",
    "text like 'a%'",
    "text not like '%\\%'",
    "text ilike 'Ä%'",
    "coalesce(text, kind, 'x')",
    "nullif(kind, 'none')",
    "nullif(tiny, 5)",
    "coalesce(tiny, small, 0)",
    "case kind when 'fruit' then 1 when 'cake' then 2 end",
    "case when tiny > 0 then big else small end",
    "tiny is distinct from small",
    "tiny is not distinct from 5",
    "kind is distinct from 'none'",
    "real is not distinct from real",
    "flag is true",
    "flag is not true",
    "flag is not false",
    "flag is unknown",
    "flag = (tiny > 0)",
    "cast(flag as int)",
    "cast(tiny as boolean)",
    "cast(day as timestamp)",
    "date_part('year', day)",
    "extract(month from day)",
    "extract(dow from day)",
    "date_trunc('month', day)",
    "date_trunc('quarter', cast(day as timestamp))",
    "cast(date_trunc('year', cast(day as timestamp)) as date)",
    "cast(cast(day as timestamp) as timestamp(3))",
    "cast(price as int)",
    "cast(price as double) / 3",
    "abs(small)",
    "round(real, 1)",
    "greatest_of_none",
];

/// Whole queries.
const QUERIES: &[&str] = &[
    "select kind, count(distinct tiny), count(distinct small), sum(distinct byte) from types group by kind",
    "select count(distinct f_dim), count(distinct f_color), count(*) from fact",
    "select f_color, count(distinct f_dim), sum(f_value), min(f_id) from fact group by f_color",
    "select f_color, count(distinct f_dim), avg(f_id), count(*) from fact group by f_color",
    "select avg(f_value) filter (where f_id > 500), sum(distinct f_dim), avg(distinct f_dim) from fact",
    "select avg(f_id), count(distinct f_dim) from fact where f_id < 0",
    "select count(distinct f_dim) filter (where f_id > 500), count(*) from fact",
    "select f_color, stddev(f_value), stddev_pop(f_id), var_samp(f_value), var_pop(f_value) from fact group by f_color",
    "select stddev(tiny), var_pop(real), stddev_samp(price) from types where id < 3",
    "select kind, stddev(tiny) from types group by kind",
    "select bool_and(flag), bool_or(flag), bool_and(tiny > 0) from types",
    "select kind, bool_and(flag), bool_or(flag) filter (where id > 2) from types group by kind",
    "select bool_and(flag) from types where id > 100",
    "select f_color, f_dim, sum(f_value), count(*) from fact group by rollup (f_color, f_dim)",
    "select f_color, f_dim, grouping(f_color), grouping(f_dim), min(f_value) from fact where f_dim < 4 \
     group by cube (f_color, f_dim)",
    "select f_color, f_dim, count(*) from fact where f_dim < 3 group by grouping sets ((f_color), (f_dim), ())",
    "select f_color, count(*) from fact where f_dim < 3 group by grouping sets ((f_color), (f_color), ())",
    "select f_color, count(*) from fact where f_id < 0 group by rollup (f_color)",
    "select n, count(*) from (select f_dim, count(*) as n from fact group by f_dim) g group by n",
    "select count(*), avg(s) from (select f_color, f_dim, sum(f_value) as s from fact group by f_color, f_dim) g",
    "select max(c) from (select count(*) as c from fact group by f_day) g",
    "select f_color, count(*) from (select f_color from fact where f_id < 10 union all \
     select d_name from dim) u group by f_color",
    "select count(*) from (select distinct f_dim, f_color from fact) d",
    "select d_name, sum(n) from dim join (select f_dim, count(*) as n from fact group by f_dim) g on f_dim = d_id \
     group by d_name",
    "select f_color, sum(f_value) from fact join (select max(d_id) as m from dim group by d_area) g on f_dim = m \
     group by f_color",
    "select lower(d_name) || '!', count(*) from fact join dim on f_dim = d_id where upper(d_name) like 'C%' group by 1",
    "select count(*) from fact join dim on f_dim = d_id and f_value is distinct from 1 where d_rank is not distinct from 2",
];

/// Joins of all kinds: sides larger than what is streamed, sides that are joins, conditions on pairs.
const JOINS: &[&str] = &[
    "select d_name, count(*) from dim where exists (select 1 from fact where f_dim = d_id) group by d_name",
    "select d_name from dim where not exists (select 1 from fact where f_dim = d_id and f_value > 100)",
    "select d_name, d_id from dim where d_id in (select f_dim from fact where f_color = 'red')",
    "select d_name, count(f_id), sum(f_value) from dim left join fact on f_dim = d_id group by d_name",
    "select d_name, f_id from dim left join fact on f_dim = d_id and f_value < d_rank",
    "select d_name, count(*) from dim left join (fact join area on f_dim = a_id) on f_dim = d_id group by d_name",
    "select d_id from dim where exists (select 1 from fact join area on f_dim = a_id where f_value = d_rank)",
    "select count(*), sum(f_value), sum(d_rank) from fact full join dim on f_dim = d_id",
    "select f_id, d_name from fact full join dim on f_dim = d_id and f_value > 50",
    "select a_name, d_name from area full join dim on a_id = d_id where a_name is null or d_name is null",
    "select d_area, count(a_id) from area full join dim on a_id = d_id group by d_area",
    "select t.id, u.id from types t full join types u on t.small = u.tiny",
    "select d_name from dim where d_rank > 2 or exists (select 1 from fact where f_dim = d_id and f_color = 'red')",
    "select count(*) from fact where f_value < 10 or f_dim not in (select d_id from dim where d_rank > 3)",
    "select a.f_id, b.f_id from fact a join fact b on a.f_value = b.f_value and a.f_id < b.f_id where a.f_dim = 3",
    "select count(*), sum(a.f_id), sum(b.f_id) from fact a join fact b on a.f_dim = b.f_dim and a.f_color = b.f_color",
];

/// Subqueries of one value, and groups of which joins ask for a few.
const SUBQUERIES: &[&str] = &[
    "select f_id from fact where f_value > (select avg(f_value) from fact where f_dim = 1)",
    "select f_id, (select max(d_rank) from dim) as m from fact where f_value < (select max(d_rank) * 3 from dim)",
    "select count(*), sum(f_value * (select min(d_rank) from dim)) from fact",
    "select f_id from fact where f_value > (select f_value from fact where f_id < 0)",
    "select coalesce((select f_value from fact where f_id < 0), -1) + f_id as s, count(*) from fact group by 1",
    "select f_id from fact where f_color = (select min(f_color) from fact) and f_dim = (select max(d_id) from dim where d_name = (select min(d_name) from dim))",
    "select d_name, count(*) from fact join dim on f_dim = d_id where d_rank >= (select avg(d_rank) from dim) group by d_name having count(*) > (select count(*) / 10 from dim)",
    "select f_id, f_value from fact, dim where f_dim = d_id and d_rank > 2 and f_value < (select avg(f.f_value) from fact f where f.f_dim = d_id)",
    "select d_name, d_id from dim where d_rank < 3 and d_id < (select sum(f_value) from fact where f_dim = d_id)",
    "select d_name, (select count(*) from fact where f_dim = d_id) as n from dim where d_rank > 1",
    "select d_name, n from dim left join (select f_dim, count(*) n from fact group by f_dim) g on d_id = f_dim where d_rank > 1",
    "select d_name from dim where d_rank > 1 and d_id not in (select f_dim from fact where f_dim is not null group by f_dim having count(*) > 3)",
    "select f_color, n from (select f_color, f_dim, count(*) n from fact group by f_color, f_dim) g join dim on g.f_dim = d_id where d_name like 'c%'",
    "select d_name, n from (select f_dim + 1 as k, count(*) n from fact group by f_dim + 1) g join dim on k = d_id where d_rank > 1",
    "select count(*) from fact where f_dim in (select f_dim from fact group by f_dim having sum(f_value) > 50) and f_dim in (select d_id from dim where d_rank = 2)",
];

/// Queries whose rows come in order.
const ORDERED: &[&str] = &[
    "select f_id, f_value from fact where f_dim > 3 order by f_value desc nulls last, f_id limit 7",
    "select f_color, f_id from fact order by f_color, f_id desc limit 5",
    "select id, real from types order by real, id limit 6",
    "select id, real from types where id <> 2 order by real desc nulls first, id limit 6",
    "select id, text from types where id > 1 order by text desc, id limit 4 offset 2",
    "select f_id, d_name from fact join dim on f_dim = d_id order by d_name, f_id desc limit 9",
    "select f_id from fact where f_id < 0 order by f_id limit 3",
    "select id, price, day, flag, kind from types order by price, id limit 8",
    "select f_id, f_value from fact where f_dim > 3 order by f_value, f_id",
    "select f_id, f_value % 7 as m from fact where f_dim > 3 order by m desc, -f_id",
    "select id, real from types where id <> 2 order by real desc nulls last, id",
    "select id, kind, text from types where id > 0 order by kind nulls first, text desc, id",
    "select id, text from types where id > 0 order by length(text), id",
    "select n, word from many where n % 3 > 0 order by word desc, n",
    "select f_color, f_dim, sum(f_value) as s from fact group by f_color, f_dim order by s, f_color, f_dim",
];

async fn sessions() -> (tempfile::TempDir, Session, Session) {
    let folder = tempfile::tempdir().unwrap();
    let session = |processor| {
        let settings = Settings { processor, threads: 2, ..Settings::default() };
        let limits = RunnerOptions::default();
        Session::new(SessionOptions { settings, limits }).unwrap()
    };
    let (off, cpu) = (session(Processor::Off), session(Processor::Cpu));
    tables::register(&off, folder.path()).await;
    cpu.register_path(folder.path()).unwrap();
    (folder, off, cpu)
}

type Rows = Vec<Vec<String>>;

async fn rows(session: &Session, sql: &str) -> Result<(Rows, QueryReport), String> {
    let query = session.sql(sql).await.map_err(|error| error.to_string())?;
    let (batches, report) = query.collect().await.map_err(|error| error.to_string())?;
    let options = FormatOptions::default().with_null("NULL");
    let of_batch = |batch: &RecordBatch| {
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column, &options).unwrap());
        let columns: Vec<_> = columns.collect();
        let row = |row: usize| columns.iter().map(|c| c.value(row).to_string()).collect();
        (0..batch.num_rows()).map(row).collect::<Vec<Vec<String>>>()
    };
    Ok((batches.iter().flat_map(of_batch).collect(), report))
}

/// Texts of floats that differ in their last digits are equal.
fn rounded(rows: Rows) -> Rows {
    let cell = |cell: String| match cell.parse::<f64>() {
        Ok(value) if cell.contains('.') => format!("{value:.9e}"),
        _ => cell,
    };
    rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect()
}

/// What differs, and what was left to the planner.
async fn differences(queries: &[String], in_order: bool) -> Vec<String> {
    let (_folder, off, cpu) = sessions().await;
    let mut told = Vec::new();
    for sql in queries {
        let (wanted, found) = (rows(&off, sql).await, rows(&cpu, sql).await);
        let ((mut wanted, _), (mut found, report)) = match (wanted, found) {
            (Ok(wanted), Ok(found)) => (wanted, found),
            (Err(_), Err(_)) if sql.contains("greatest_of_none") => continue,
            (wanted, found) => {
                let wanted = wanted.map(|(rows, _)| rows);
                told.push(format!("{sql}: {wanted:?}, by pipelines {:?}", found.map(|(r, _)| r)));
                continue;
            }
        };
        (wanted, found) = (rounded(wanted), rounded(found));
        if !in_order {
            wanted.sort();
            found.sort();
        }
        if wanted != found {
            told.push(format!("{sql}: {wanted:?}, by pipelines {found:?}"));
        }
        let is_empty = report.pipelines.is_empty();
        let left: Vec<_> =
            report.why_not.iter().filter(|why| !why.contains("headrace.processor is")).collect();
        if is_empty || !left.is_empty() {
            told.push(format!("{sql}: left to the planner: {left:?}"));
        }
    }
    told
}

fn none(told: Vec<String>) {
    assert!(told.is_empty(), "{} differ:\n{}", told.len(), told.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_are_the_planners() {
    let of = |expr: &&str| {
        [
            format!("select id, {expr} from types where id > 0"),
            format!("select {expr} as e, count(*), max(id) from types group by e"),
        ]
    };
    none(differences(&TEXTS.iter().flat_map(of).collect::<Vec<_>>(), false).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregations_are_the_planners() {
    let queries: Vec<String> = QUERIES.iter().map(ToString::to_string).collect();
    none(differences(&queries, false).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_are_the_planners() {
    let queries: Vec<String> = JOINS.iter().map(ToString::to_string).collect();
    none(differences(&queries, false).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subqueries_are_the_planners() {
    let queries: Vec<String> = SUBQUERIES.iter().map(ToString::to_string).collect();
    none(differences(&queries, false).await);
}

/// The pipeline of the groups probes the table whose filter says which are wanted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_no_join_asks_for_are_not_made() {
    let (_folder, _, cpu) = sessions().await;
    let few = "select d_name, n from (select f_dim, count(*) n from fact group by f_dim) g join dim on f_dim = d_id";
    let is_reduced = |stage: &Pipeline| {
        let groups = matches!(stage.sink, Sink::Aggregate { .. });
        groups && stage.source.table == "fact" && stage.probes().count() == 1
    };
    let reduced = |report: &QueryReport| {
        report.pipelines.iter().flat_map(|run| run.ran()).any(|(stage, _)| is_reduced(stage))
    };
    let (_, all) = rows(&cpu, few).await.unwrap();
    assert!(!reduced(&all), "{all:?}");
    let (found, some) = rows(&cpu, &format!("{few} where d_rank = 2")).await.unwrap();
    assert!(reduced(&some) && !found.is_empty(), "{some:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_the_planners() {
    let queries: Vec<String> = ORDERED.iter().map(ToString::to_string).collect();
    none(differences(&queries, true).await);
}

fn write_as(path: &std::path::Path, batch: &RecordBatch, compression: Option<CompressionType>) {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = FileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
}

/// What does not lie as pipelines take it is decoded by the scan, and its rows stream; the reason is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_batches_and_views_stream() {
    let (folder, off, cpu) = sessions().await;
    let all = off.sql("select id, text, small, price from types").await.unwrap();
    let (batches, _) = all.collect().await.unwrap();
    let whole = concat_batches(&batches[0].schema(), &batches).unwrap();
    let mut columns = whole.columns().to_vec();
    columns[1] = cast(&columns[1], &DataType::Utf8View).unwrap();
    let names = ["id", "text", "small", "price"];
    let views = RecordBatch::try_from_iter_with_nullable(
        names.into_iter().zip(columns).map(|(name, column)| (name, column, true)),
    );
    for (name, batch, compression) in [
        ("lz4", &whole, Some(CompressionType::LZ4_FRAME)),
        ("zstd", &whole, Some(CompressionType::ZSTD)),
        ("views", &views.unwrap(), None),
    ] {
        let path = folder.path().join(format!("{name}.arrow"));
        write_as(&path, batch, compression);
        off.register_path(&path).unwrap();
        cpu.register_path(&path).unwrap();
        for query in [
            "select text, count(*), sum(small), min(price) from T where id > 1 group by text",
            "select a.id, f_id, b.text from T a join fact on a.id = f_dim left join T b on b.id = f_value",
            "select id, text from T where text like 'a%'",
        ] {
            let sql = query.replace('T', name);
            let (mut wanted, _) = rows(&off, &sql).await.unwrap();
            let (mut found, report) = rows(&cpu, &sql).await.unwrap();
            wanted.sort();
            found.sort();
            assert_eq!(found, wanted, "{sql}");
            assert!(!wanted.is_empty() && !report.pipelines.is_empty(), "{sql}: {report:?}");
            let reason = if name == "views" { "lie as views" } else { "is compressed" };
            assert!(report.why_not.iter().any(|why| why.contains(reason)), "{sql}: {report:?}");
        }
        let forbid = "set headrace.fallback = 'forbid'";
        rows(&cpu, forbid).await.unwrap();
        assert!(rows(&cpu, &format!("select id from {name} where text = 'a'")).await.is_err());
        rows(&cpu, &forbid.replace("forbid", "allow")).await.unwrap();
    }
}
