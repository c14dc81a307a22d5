//! Words of other databases, names in any case, and what columns are called.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::datasource::MemTable;
use headrace_engine::{Session, SessionOptions};

fn session() -> Session {
    let session = Session::new(SessionOptions::default()).unwrap();
    let fields =
        vec![Field::new("fare", DataType::Int64, true), Field::new("City", DataType::Utf8, true)];
    let schema = Arc::new(Schema::new(fields));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(3), Some(1), None])),
        Arc::new(StringArray::from(vec!["Rome", "Oslo", "Rome"])),
    ];
    let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
    let table = Arc::new(MemTable::try_new(schema, vec![vec![batch]]).unwrap());
    session.context().register_table("trips", table.clone()).unwrap();
    session.context().register_table("\"Taxis\"", table).unwrap();
    session
}

/// Names of the columns, and the rows as text.
async fn answer(session: &Session, sql: &str) -> Result<(String, Vec<String>), String> {
    let query = session.sql(sql).await.map_err(|error| error.to_string())?;
    let names = |schema: &Schema| -> String {
        schema.fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>().join("|")
    };
    let header = names(&query.schema());
    let (batches, _) = query.collect().await.map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    for batch in &batches {
        assert_eq!(names(&batch.schema()), header, "{sql}");
        for row in 0..batch.num_rows() {
            let cells = batch.columns().iter().map(|c| array_value_to_string(c, row).unwrap());
            rows.push(cells.collect::<Vec<_>>().join("|"));
        }
    }
    Ok((header, rows))
}

async fn check(sql: &str, header: &str, first: &str) {
    let (found, rows) = answer(&session(), sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    assert_eq!((found.as_str(), rows.first().map_or("", String::as_str)), (header, first), "{sql}");
}

#[tokio::test]
async fn columns_are_called_what_was_written() {
    check("select count(*) from trips", "count(*)", "3").await;
    check("select fare::int, fare+1 as next, fare from trips", "fare::int|next|fare", "3|4|3")
        .await;
    check("select distinct on (fare) fare * 2 from trips where fare = 1", "fare * 2", "2").await;
    check(
        "select all trips.fare, (select 1), 'a,b' from trips",
        "fare|(select 1)|'a,b'",
        "3|1|a,b",
    )
    .await;
    check("select fare is distinct from 3, 7 from trips", "fare is distinct from 3|7", "false|7")
        .await;
    check("with c as (select 1 as a) select a+1 from c", "a+1", "2").await;
    check(
        "select\n  max(fare),\n  -- which\n  count(distinct\n fare)\nfrom trips",
        "max(fare)|count(distinct fare)",
        "3|2",
    )
    .await;
    check("(select fare+1 from trips where fare = 1) union all select 2", "fare+1", "2").await;
    check("select *, fare + 1 from trips", "fare|City|fare + 1", "3|Rome|4").await;
    check("select fare + 1, * from trips", "fare + 1|fare|City", "4|3|Rome").await;
    check(
        "select unnest([1, 2]), 1+1",
        "UNNEST(make_array(Int64(1),Int64(2)))|Int64(1) + Int64(1)",
        "1|2",
    )
    .await;
}

#[tokio::test]
async fn an_explanation_has_its_own_columns() {
    for sql in
        ["explain select count(*), sum(fare) from trips", "explain select *, 1 + 1 from trips"]
    {
        assert_eq!(answer(&session(), sql).await.unwrap().0, "plan_type|plan", "{sql}");
    }
}

#[tokio::test]
async fn names_of_two_tables_are_found_in_any_case() {
    let sql =
        "select a.city from trips a, trips b where a.fare = 1 and b.fare = 3 and b.city = 'Rome'";
    check(sql, "City", "Oslo").await;
}

#[tokio::test]
async fn expressions_of_many_levels_are_planned_or_refused() {
    let chain = |term: &str, operator: &str, terms: usize| vec![term; terms].join(operator);
    let sql = format!("select length({}) as n", chain("'a'", " || ", 1000));
    check(&sql, "n", "1000").await;
    let sql = format!("select fare from trips where {}", chain("fare <> 2", " and ", 500));
    check(&sql, "fare", "3").await;
    let error = answer(&session(), &format!("select {}", chain("1", " + ", 100_000))).await;
    assert!(error.unwrap_err().contains("levels"));
}

#[tokio::test]
async fn two_columns_may_have_one_name() {
    check("select fare, fare::bigint from trips", "fare|fare::bigint", "3|3").await;
    check("select fare, fare from trips", "fare|fare", "3|3").await;
    check("select count(*), count(*) from trips", "count(*)|count(*)", "3|3").await;
    check("select *, fare from trips", "fare|City|fare", "3|Rome|3").await;
    check("select fare as x, fare + 1 as x from trips order by x", "x|x", "1|2").await;
    check("select 1, 1 union all select 2, 2 order by 1", "1|1", "1|1").await;
    let error = answer(&session(), "select * from (select 1 as a, 2 as a) as s").await.unwrap_err();
    assert!(error.contains("unique expression names"), "{error}");
}

#[tokio::test]
async fn names_are_found_in_any_case() {
    check("select CITY, Fare from TAXIS where city = 'Oslo'", "City|fare", "Oslo|1").await;
    check("select t.city from trips t group by t.city order by t.city", "City", "Oslo").await;
    check("select Taxis.city from taxis order by fare limit 1", "City", "Oslo").await;
    check("with city as (select city from trips) select count(*) from city", "count(*)", "3").await;
    for sql in ["select \"city\" from trips", "select * from \"taxis\"", "select town from trips"] {
        assert!(answer(&session(), sql).await.is_err(), "{sql}");
    }
}

#[tokio::test]
async fn words_of_other_databases() {
    check("from trips", "fare|City", "3|Rome").await;
    check("from trips select fare where fare < 2", "fare", "1").await;
    check("select count(*) from (from trips)", "count(*)", "3").await;
}

#[tokio::test]
async fn a_summary_has_a_row_for_each_column() {
    let session = session();
    for sql in ["summarize trips;", "SUMMARIZE select * from trips", "summarize TRIPS"] {
        let (header, rows) = answer(&session, sql).await.unwrap();
        assert_eq!(header, "column_name|column_type|min|max|avg|std|count|nulls");
        assert_eq!(
            rows,
            ["fare|BIGINT|1|3|2.0|1.4142135623730951|2|1", "City|VARCHAR|Oslo|Rome|||3|0"]
        );
    }
    assert!(answer(&session, "summarize nothing").await.is_err());
}

#[tokio::test]
async fn tables_are_listed_without_the_planners_own() {
    let (header, rows) = answer(&session(), "show tables").await.unwrap();
    assert_eq!((header.as_str(), rows), ("name", vec!["Taxis".to_string(), "trips".to_string()]));
}
