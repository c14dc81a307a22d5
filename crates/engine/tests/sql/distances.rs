//! Fingerprints and vectors: what pipelines answer is what the planner's functions and a count by hand answer.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Int64Array,
    RecordBatch,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type};
use headrace_engine::{Fallback, Processor, Session, SessionOptions, Settings};
use tempfile::TempDir;

use crate::{ran, tables};

const ROWS: usize = 3_000;
/// Not a multiple of words, so that what is left over is counted, too.
const BYTES: usize = 21;
const ITEMS: usize = 19;

/// Bits as if by chance.
fn fingerprint(row: usize) -> [u8; BYTES] {
    let mut state = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8 & (state >> 45) as u8
    })
}

fn vector(row: usize) -> Vec<f32> {
    fingerprint(row).iter().take(ITEMS).map(|&byte| f32::from(byte) - 99.5).collect()
}

/// Every seventh row has no fingerprint, every eleventh no vector.
fn compounds() -> RecordBatch {
    let ids = Int64Array::from_iter_values(0..ROWS as i64);
    let fingerprints = (0..ROWS).map(|row| (row % 7 != 6).then(|| fingerprint(row)));
    let fingerprints =
        FixedSizeBinaryArray::try_from_sparse_iter_with_size(fingerprints, BYTES as i32).unwrap();
    let floats = Float32Array::from_iter_values((0..ROWS).flat_map(vector));
    let nulls = NullBuffer::from_iter((0..ROWS).map(|row| row % 11 != 10));
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let vectors = FixedSizeListArray::new(item, ITEMS as i32, Arc::new(floats), Some(nulls));
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("id", Arc::new(ids), false),
        ("fp", Arc::new(fingerprints), true),
        ("v", Arc::new(vectors), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn session(processor: Processor) -> (Session, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("compounds.arrow");
    tables::write(&path, &compounds(), 640, true);
    let fallback = if processor == Processor::Off { Fallback::Allow } else { Fallback::Forbid };
    let settings = Settings { processor, fallback, ..Settings::default() };
    let session = Session::new(SessionOptions { settings, ..SessionOptions::default() }).unwrap();
    session.register_arrow("compounds", &[path]).unwrap();
    (session, folder)
}

/// The answer, which the session's processor gave.
async fn answer(session: &Session, sql: &str) -> RecordBatch {
    let query = session.sql(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let schema = query.schema();
    let (batches, report) = query.collect().await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let stages = ran::on_wanted(&session.settings(), &report).unwrap();
    let is_planner = session.settings().processor == Processor::Off;
    assert_eq!(stages == 0, is_planner, "{sql}: {report:?}");
    datafusion::arrow::compute::concat_batches(&schema, &batches).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn list(vector: &[f32]) -> String {
    let items: Vec<String> = vector.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(", "))
}

/// Number, likeness, distance and bits of each row.
fn rows_of(found: &RecordBatch) -> Vec<(i64, f64, i64, i64)> {
    let int = |column: usize| found.column(column).as_primitive::<Int64Type>();
    let shares = found.column(1).as_primitive::<Float64Type>();
    let row = |row| (int(0).value(row), shares.value(row), int(2).value(row), int(3).value(row));
    (0..found.num_rows()).map(row).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nearest_are_those_that_a_count_by_hand_finds() {
    let (session, _folder) = session(Processor::Cpu);
    let query = fingerprint(70_000);
    let sql = format!(
        "select id, tanimoto(fp, x'{0}') as t, hamming_distance(fp, x'{0}') as h, bit_count(fp) as n
         from compounds order by t desc, id limit 20",
        hex(&query)
    );
    let found = answer(&session, &sql).await;
    let ones = |of: &dyn Fn(usize) -> u8| (0..BYTES).map(|i| of(i).count_ones()).sum::<u32>();
    let mut wanted: Vec<(i64, f64, i64, i64)> = (0..ROWS)
        .filter(|row| row % 7 != 6)
        .map(|row| {
            let own = fingerprint(row);
            let common = f64::from(ones(&|i| own[i] & query[i]));
            let share = common / f64::from(ones(&|i| own[i] | query[i]));
            let (apart, count) = (ones(&|i| own[i] ^ query[i]), ones(&|i| own[i]));
            (row as i64, share, apart.into(), count.into())
        })
        .collect();
    wanted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    wanted.truncate(20);
    let found = rows_of(&found);
    // NULL comes before all others in descending order.
    let nulls = (0..ROWS).filter(|row| row % 7 == 6).count().min(20);
    assert_eq!(nulls, 20);
    assert!(found.iter().all(|row| row.0 % 7 == 6));
    let sql = sql.replace("from compounds", "from compounds where fp is not null");
    let found = answer(&session, &sql).await;
    assert_eq!(rows_of(&found), wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelines_and_the_planner_have_the_same_bits() {
    let (pipelines, _one) = session(Processor::Cpu);
    let (planner, _other) = session(Processor::Off);
    let (bits, floats) = (hex(&fingerprint(80_000)), list(&vector(80_000)));
    for sql in [
        format!("select id, l2_distance(v, {floats}) as d from compounds where v is not null order by d, id limit 30"),
        format!("select id, cosine_distance(v, {floats}), dot(v, {floats}) from compounds order by id"),
        format!("select count(*), min(tanimoto(fp, x'{bits}')), max(hamming_distance(fp, x'{bits}')) from compounds"),
        // The query is a row of the table.
        "select id, fp, tanimoto(fp, (select fp from compounds where id = 123)) as t from compounds
         where fp is not null order by t desc, id limit 9".into(),
        "select id, v, l2_distance(v, (select v from compounds where id = 123)) as d from compounds
         where v is not null order by d, id limit 9".into(),
        // Bytes as keys, compared, and in a list.
        "select fp, count(*) from (select fp from compounds union all select fp from compounds where id < 50) group by fp order by fp limit 40".into(),
        format!("select id from compounds where fp < x'{bits}' and fp <> x'{bits}' order by id"),
        format!("select id, fp from compounds where fp in (x'{}', x'{}') order by id", hex(&fingerprint(3)), hex(&fingerprint(5))),
        "select id, case when id % 2 = 0 then fp end as f from compounds order by f, id limit 50".into(),
        "select count(fp), count(distinct fp) from compounds".into(),
        // A list with NULL has no distance, nor has NULL.
        format!("select count(*) from compounds where dot(v, {}) is null", floats.replacen("[", "[null, ", 1).rsplit_once(", ").map(|(most, _)| format!("{most}]")).unwrap()),
        "select count(*) from compounds where tanimoto(fp, null) is null and l2_distance(null, v) is null".into(),
    ] {
        let (one, other) = (answer(&pipelines, &sql).await, answer(&planner, &sql).await);
        assert_eq!(one.columns(), other.columns(), "{sql}");
        assert!(one.num_rows() > 0, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nearest_of_each_of_several_are_found_at_once() {
    let (pipelines, _one) = session(Processor::Cpu);
    let (planner, _other) = session(Processor::Off);
    let several = "(select id, fp, v from compounds where id % 400 < 2) q cross join compounds c";
    for sql in [
        format!(
            "select q, c, d from (
               select q.id as q, c.id as c, tanimoto(q.fp, c.fp) as d,
                      row_number() over (partition by q.id order by tanimoto(q.fp, c.fp) desc, c.id) as r
               from {several} where q.fp is not null and c.fp is not null)
             where r <= 5 order by q, d desc, c"
        ),
        format!(
            "select q, c, d from (
               select q, c, d, rank() over (partition by q order by d, c) as r
               from (select q.id as q, c.id as c, l2_distance(q.v, c.v) as d from {several}))
             where r <= 5 order by q, d, c"
        ),
        format!(
            "select q.id, max(tanimoto(q.fp, c.fp)), min(l2_distance(q.v, c.v)), count(*)
             from {several} where q.id <> c.id group by q.id order by q.id"
        ),
        format!(
            "select q.id, c.id, q.fp, q.v from {several} where hamming_distance(q.fp, c.fp) < 25 order by 1, 2"
        ),
        "select c.id, q.fp, q.v, tanimoto(c.fp, q.fp) from compounds c left join
           (select * from compounds where id % 3 = 0) q on c.id = q.id + 1 order by c.id"
            .to_string(),
    ] {
        let (mine, theirs) = (answer(&pipelines, &sql).await, answer(&planner, &sql).await);
        assert_eq!(mine.columns(), theirs.columns(), "{sql}");
        assert!(mine.num_rows() > 5, "{sql}");
    }
    // Those that a condition leaves are looked up, wherever they stand, and whatever is read of them.
    let asked = "(select id, fp from compounds where id < 9) q";
    for pairs in
        [format!("compounds c cross join {asked}"), format!("{asked} cross join compounds c")]
    {
        let sql =
            format!("explain select q.id, max(tanimoto(q.fp, c.fp)) from {pairs} group by q.id");
        let (rows, _) = pipelines.sql(&sql).await.unwrap().collect().await.unwrap();
        let plan =
            datafusion::arrow::util::pretty::pretty_format_batches(&rows).unwrap().to_string();
        let lines: Vec<&str> = plan.lines().collect();
        let at = |what: &str| lines.iter().position(|line| line.contains(what));
        let (build, filter, probe) =
            (at("build compounds"), at("filter id < 9"), at("probe compounds"));
        assert!(build.is_some() && build < filter && filter < probe, "{plan}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_pipelines_do_not_take_the_planner_answers() {
    let (forbidding, _one) = session(Processor::Cpu);
    let settings = Settings { fallback: Fallback::Allow, ..forbidding.settings() };
    let allowing = Session::new(SessionOptions { settings, ..SessionOptions::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("compounds.arrow");
    tables::write(&path, &compounds(), 640, true);
    allowing.register_arrow("compounds", &[path]).unwrap();
    for sql in [
        "select max(fp) from compounds",
        "select count(*) from (select v from compounds where id < 5 group by v)",
        "select count(*) from compounds a join compounds b on a.fp = b.fp where b.id < 100",
        "select id, fp, row_number() over (order by id) from compounds order by 3 limit 3",
    ] {
        let (batches, _) = allowing.sql(sql).await.unwrap().collect().await.unwrap();
        assert!(batches.iter().map(RecordBatch::num_rows).sum::<usize>() > 0, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_are_told() {
    let (session, _folder) = session(Processor::Auto);
    for (sql, cause) in [
        ("select tanimoto(fp, x'00') from compounds", "21 and 1 bytes"),
        ("select hamming_distance(fp, v) from compounds", "there is no hamming_distance"),
        ("select l2_distance(v, [1.0, 2.0]) from compounds", "l2_distance() of 19 and 2 floats"),
        ("select bit_count('text')", "there is no bit_count"),
        ("select dot([1.0], [1.0, 2.0])", "1 and 2 floats"),
        ("select tanimoto(x'00', x'0000')", "1 and 2 bytes"),
        ("select tanimoto(fp) from compounds", "there is no tanimoto"),
    ] {
        let error = match session.sql(sql).await {
            Err(error) => error.to_string(),
            Ok(query) => query.collect().await.map(|_| sql).unwrap_err().to_string(),
        };
        assert!(error.contains(cause), "{sql}: {error}");
    }
}

/// A list with NULL for an item has no distance, and is given back as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_which_an_item_is_null_has_no_distance() {
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let floats = Float32Array::from(vec![Some(1.0), Some(2.0), None, Some(4.0)]);
    let lists: ArrayRef = Arc::new(FixedSizeListArray::new(item, 2, Arc::new(floats), None));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.arrow");
    tables::write(&path, &RecordBatch::try_from_iter([("v", lists)]).unwrap(), 640, true);
    let session = Session::new(SessionOptions::default()).unwrap();
    session.register_arrow("t", &[path]).unwrap();
    let sql = "select v, l2_distance(v, [1.0, 2.0]) as d from t order by d";
    let (batches, _) = session.sql(sql).await.unwrap().collect().await.unwrap();
    let batch = datafusion::arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap();
    let distances = batch.column(1).as_primitive::<Float64Type>();
    assert_eq!((distances.value(0), distances.is_null(1)), (0.0, true));
    let last = batch.column(0).as_fixed_size_list().value(1);
    assert!(last.is_null(0) && last.is_valid(1));
    let sql = "select count(*), count(l2_distance(a.v, b.v)) from t a cross join t b";
    let (batches, _) = session.sql(sql).await.unwrap().collect().await.unwrap();
    let counts =
        [0, 1].map(|column| batches[0].column(column).as_primitive::<Int64Type>().value(0));
    assert_eq!(counts, [4, 1]);
}
