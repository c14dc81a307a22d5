//! Bytes that contradict their layout are an error, whatever they are.

use headrace_columns::ColumnError;
use headrace_ir::{
    AggregateFunction, ArithmeticOp, DataType, Expr, OnOverflow, Sink, Value, ValueRange,
};
use headrace_pipeline::ExecError;
use proptest::prelude::*;

use crate::random::{self, Random};
use crate::support::*;

fn all_rows(table: &Table) -> Result<(), ExecError> {
    let columns = table.fields.iter().map(|f| named(&f.name, table.col(&f.name))).collect();
    run(table, vec![], Sink::Rows { columns, limit: None }, &[]).map(drop)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rubbish_never_panics(seed: u64) {
        let mut random = Random(seed);
        let (mut table, _) = random::table(&mut random, 20);
        for _ in 0..1 + random.below(4) {
            let column = random.below(table.columns.len());
            let column = &mut table.columns[column];
            let buffers = [
                Some(&mut column.values), column.offsets.as_mut(), column.validity.as_mut(),
            ];
            for buffer in buffers.into_iter().flatten() {
                if !buffer.is_empty() && random.chance(50) {
                    let at = random.below(buffer.len());
                    buffer[at] = random.below(256) as u8;
                }
                if random.chance(10) {
                    let length = random.below(buffer.len() + 1).max(1);
                    buffer.truncate(length);
                }
            }
        }
        // Either outcome is right for some rubbish; a panic never is.
        if let Err(error) = all_rows(&table) {
            prop_assert!(matches!(error, ExecError::Column(ColumnError::Corrupt { .. })), "{}", error);
        }
    }
}

#[test]
fn a_short_buffer_is_named() {
    let mut table = Table::new("t", 4).int32("i", &[1, 2, 3, 4]);
    table.columns[0].values.truncate(15);
    let error = all_rows(&table).unwrap_err();
    assert_eq!(
        error.to_string(),
        "corrupt data in column i: 15 bytes of values where 16 are needed"
    );
}

#[test]
fn offsets_that_run_backwards() {
    let mut table = Table::new("t", 2).text("t", &["ab", "cd"]);
    table.columns[0].offsets = Some([0u32, 3, 2].iter().flat_map(|v| v.to_le_bytes()).collect());
    assert!(matches!(
        all_rows(&table).unwrap_err(),
        ExecError::Column(ColumnError::Corrupt { .. })
    ));
}

#[test]
fn a_code_outside_its_dictionary() {
    let mut random = Random(1);
    let (mut table, data) = random::table(&mut random, 20);
    let last = table.columns.len() - 1;
    let row = data.iter().position(|row| row[last] != Value::Null).unwrap();
    let code_bytes = (table.columns[last].values.len() - table.columns[last].skip) / 20;
    let at = table.columns[last].skip + row * code_bytes;
    table.columns[last].values[at..at + code_bytes].fill(0x7f);
    let error = all_rows(&table).unwrap_err();
    assert!(error.to_string().contains("of a dictionary of 9 values"), "{error}");
}

#[test]
fn a_group_outside_its_statistics() {
    let mut table = Table::new("t", 3).int32("i", &[1, 2, 3]);
    table.columns[0].info.range = Some(ValueRange { min: 1, max: 2 });
    let sink = Sink::aggregate(
        vec![named("i", table.col("i"))],
        vec![call(AggregateFunction::Count, None, DataType::Int64)],
    );
    assert!(matches!(
        run(&table, vec![], sink, &[]).unwrap_err(),
        ExecError::Column(ColumnError::Corrupt { .. })
    ));
}

/// Statistics may choose how groups lie; they must not leave an overflow check out.
#[test]
fn false_statistics_do_not_hide_an_overflow() {
    let mut table = Table::new("t", 2).int32("i", &[2_000_000_000, 2]);
    table.columns[0].info.range = Some(ValueRange { min: 1, max: 10 });
    let square = Expr::Arithmetic {
        op: ArithmeticOp::Multiply,
        left: Box::new(table.col("i")),
        right: Box::new(table.col("i")),
        data_type: DataType::Int32,
        on_overflow: OnOverflow::Error,
    };
    let sink =
        Sink::aggregate(vec![], vec![call(AggregateFunction::Max, Some(square), DataType::Int32)]);
    let error = run(&table, vec![], sink, &[]).unwrap_err();
    assert!(matches!(error, ExecError::Column(ColumnError::Overflow { .. })), "{error}");
}

#[test]
fn a_null_where_none_was_declared() {
    let mut table = Table::new("t", 3).int32("i", &[1, 2, 3]);
    table.columns[0].validity = Some(vec![0b101]);
    assert!(matches!(
        all_rows(&table).unwrap_err(),
        ExecError::Column(ColumnError::Corrupt { .. })
    ));
}
