//! What DataFusion's operators hand on at once.

use futures::StreamExt;

use super::plain::Plain;

pub const FILES: [&str; 1] = ["wide_rows"];

#[tokio::test]
async fn wide_rows() {
    let sql = "SELECT value, repeat('x', 4096) FROM generate_series(1, 8192)";
    let plain = Plain::of(1);
    let mut batches = plain.context().sql(sql).await.unwrap().execute_stream().await.unwrap();
    let first = batches.next().await.unwrap().unwrap();
    let bytes = first.get_array_memory_size();
    assert!(
        bytes > 8192 * 4096,
        "upstream has mended this: fixes/wide_rows.rs can go\n{sql}\nnow: a batch of {bytes} bytes"
    );
}
