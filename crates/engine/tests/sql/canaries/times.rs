//! Planning that is quadratic in the number of columns: twice as many columns take four times as long, and twice as long once
//! the fault is mended. Each time is the least of several runs, which excludes other load. And a join that never pauses.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::empty::EmptyTable;
use futures::StreamExt;

use super::plain::Plain;

pub const FILES: [&str; 4] = ["long_lists", "parts", "stars", "unread_joins"];

/// Linear work would take as many times as long, square work the square of it.
const TIMES: usize = 4;

/// How much longer a statement of `TIMES` as many columns is planned.
async fn growth(few: usize, sql: impl Fn(usize) -> String) -> f64 {
    let mut least = [Duration::MAX; 2];
    for _ in 0..3 {
        for (least, columns) in least.iter_mut().zip([few, TIMES * few]) {
            let plain = Plain::of(1);
            let field = |n| Field::new(format!("c{n}"), DataType::Int64, true);
            let schema = Schema::new((0..columns).map(field).collect::<Vec<_>>());
            let table = Arc::new(EmptyTable::new(Arc::new(schema)));
            plain.context().register_table("t", table).unwrap();
            let sql = sql(columns);
            let started = Instant::now();
            plain.context().sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
            *least = started.elapsed().min(*least);
        }
    }
    least[1].as_secs_f64() / least[0].as_secs_f64()
}

fn list(columns: usize, item: &str) -> String {
    let mut list = String::new();
    for n in 0..columns {
        write!(list, "{}{}", if n == 0 { "" } else { ", " }, item.replace('#', &n.to_string()))
            .unwrap();
    }
    list
}

async fn still(file: &str, few: usize, sql: impl Fn(usize) -> String) {
    let growth = growth(few, sql).await;
    assert!(
        growth > 1.5 * TIMES as f64,
        "upstream has mended this: fixes/{file} can go\n{TIMES} times as many columns take {growth:.1} times as long"
    );
}

#[tokio::test]
async fn stars() {
    still("stars.rs", 1000, |_| "SELECT * FROM t".to_string()).await;
}

#[tokio::test]
async fn long_lists() {
    still("long_lists.rs", 400, |columns| format!("SELECT {} FROM t", list(columns, "c#"))).await;
}

#[tokio::test]
async fn parts() {
    still("parts", 200, |columns| format!("SELECT {} FROM t", list(columns, "sum(c#) AS s#")))
        .await;
}

/// Counts how often a join is polled that compares many pairs and finds none.
#[tokio::test]
async fn unread_joins() {
    let plain = Plain::of(1);
    let sql = "SELECT * FROM generate_series(1, 3000) AS a(x) JOIN generate_series(1, 200000) AS b(y) ON x * y < 0";
    let mut rows = plain.context().sql(sql).await.unwrap().execute_stream().await.unwrap();
    let mut polls = 0;
    let mut found = 0;
    std::future::poll_fn(|context| {
        polls += 1;
        while let Some(batch) = std::task::ready!(rows.poll_next_unpin(context)) {
            found += batch.unwrap().num_rows();
        }
        std::task::Poll::Ready(())
    })
    .await;
    assert_eq!(found, 0);
    assert!(
        polls < 10,
        "upstream has mended this: fixes/unread_joins.rs can go\nit paused {polls} times"
    );
}
