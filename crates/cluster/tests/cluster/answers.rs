//! The answers of clusters of several sizes are those of one process.

use crate::data::{ROWS, Tables, answer};
use crate::programs::Cluster;

/// With where they run: `groups`, `rows` and `first` in shares; what is `here` has a reason in EXPLAIN, and so has a part of `both`.
const QUERIES: &[(&str, &str)] = &[
    ("groups", "select count(*) from facts where amount > 100"),
    ("groups", "select sum(amount), min(day), max(price), avg(amount), count(few) from facts"),
    ("groups", "select few, count(*), sum(price), avg(price) from facts group by few"),
    ("groups", "select many, sum(amount), min(name), max(day) from facts group by many"),
    (
        "groups",
        "select name, few, count(*) from facts where day < date '2022-06-01' group by name, few",
    ),
    ("groups", "select float, count(*) from facts group by float"),
    (
        "groups",
        "select few, round(stddev(amount), 6), round(var_pop(amount), 4) from facts group by few",
    ),
    (
        "groups",
        "select label, sum(amount), count(*) from facts join dims on few = k group by label",
    ),
    ("groups", "select count(*) from facts where few in (select k from dims where label = 'red')"),
    (
        "groups",
        "select many, sum(amount) s from facts group by many order by s desc, many limit 10",
    ),
    (
        "groups",
        "select name, count(*) c from facts group by name having count(*) > 2061 order by name",
    ),
    ("groups", "select count(*), sum(k), max(label) from nothing where k > 0"),
    ("groups", "select label, count(*) from nothing group by label"),
    (
        "groups",
        "select count(*) from facts a join (select id from facts where amount < 9) b on a.id = b.id",
    ),
    ("rows", "select id, amount, name from facts where amount = 77"),
    ("first", "select id, price, name from facts order by price desc, id limit 20"),
    ("here", "select count(distinct few) from facts where amount > 5"),
    ("both", "select count(*) from facts where amount > (select avg(k) from dims)"),
    ("here", "select count(*) from (select id from facts where amount = 77 limit 5)"),
    ("here", "select few, name, count(*) from facts group by rollup (few, name)"),
    ("here", "select max(n) from (select few, count(*) n from facts group by few)"),
];

fn compare(executors: usize) {
    let (tables, cluster) = (Tables::shared(), Cluster::start(executors));
    for data in [tables.arrow.path(), tables.parquet.path()] {
        for (_, sql) in QUERIES {
            let (wanted, found) = (answer(data, sql), cluster.answer(data, sql, &[]));
            assert_eq!(found, wanted, "{sql} of {} by {executors}", data.display());
        }
    }
}

#[test]
fn one_executor_answers_as_one_process() {
    compare(1);
}

#[test]
fn two_executors_answer_as_one_process() {
    compare(2);
}

#[test]
fn four_executors_answer_as_one_process() {
    compare(4);
}

/// Red where a task runs more than its own shares: then each row counts once for each task.
#[test]
fn no_row_counts_twice() {
    let (tables, cluster) = (Tables::shared(), Cluster::start(4));
    for data in [tables.arrow.path(), tables.parquet.path()] {
        for shares in ["1", "3", "16", "1000"] {
            let sql = "select count(*) n from facts where id >= 0";
            let answer = cluster.answer(data, sql, &["--shares", shares]);
            assert_eq!(answer, [ROWS.to_string(), "n".to_string()], "{shares} shares");
        }
    }
}

#[test]
fn explain_analyze_says_what_tasks_did() {
    let (tables, cluster) = (Tables::shared(), Cluster::start(2));
    for data in [tables.arrow.path(), tables.parquet.path()] {
        let sql = "explain analyze select name, count(*) from facts where id >= 0 group by name";
        let plan = cluster.answer(data, sql, &["--shares", "6"]).join("\n");
        assert!(plan.contains("stage 1: tasks="), "{plan}");
        assert!(plan.contains(&format!("rows={ROWS}, bytes=")), "{plan}");
        assert!(!plan.contains("bytes=0,") && plan.contains(" GB/s in sum"), "{plan}");
        let is_place = |place: &String| plan.contains(&format!(" s at {place}"));
        assert!(cluster.places.iter().any(is_place), "{plan}");
        assert!(plan.contains("rows of PipelineMergeExec"), "{plan}");
        let plan = cluster.answer(data, &sql.replace("analyze", ""), &[]).join("\n");
        assert!(!plan.contains("stage 1:"), "{plan}");
    }
}

#[test]
fn plans_say_what_runs_where() {
    let (tables, cluster) = (Tables::shared(), Cluster::start(1));
    for data in [tables.arrow.path(), tables.parquet.path()] {
        for (place, sql) in QUERIES {
            let plan = cluster.answer(data, &format!("explain {sql}"), &[]).join("\n");
            let has = |node: &str| plan.contains(node);
            let is_so = match *place {
                "groups" => {
                    has("ClusterExec") && has("PipelineMergeExec") && has("PipelineShareExec")
                }
                // The planner reads some Parquet files by pages, which pipelines do not.
                "rows" | "first" if has("file_type=parquet") => has("AtHomeExec"),
                "rows" | "first" => has("ClusterExec") && has("PipelineShareExec"),
                "both" => has("ClusterExec") && has("AtHomeExec: not on the cluster, because "),
                _ => !has("ClusterExec") && has("AtHomeExec: not on the cluster, because "),
            };
            assert!(is_so, "{sql} of {}:\n{plan}", data.display());
        }
    }
}
