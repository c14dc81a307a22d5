//! The first rows of an order, by keys of each kind: launches after the first leave out what comes after the last row that is
//! wanted.

use super::*;

/// By a column and then by others, either way round, with NULLs before and behind.
pub fn orders() -> Vec<Case> {
    let by = |name: &'static str, column: &'static str, limit| {
        let columns = vec![(column, reg(column)), ("k", reg("k")), ("a", reg("a"))];
        Case { name, steps: vec![], sink: first_rows(columns, limit) }
    };
    let computed = |limit| {
        let sum = add(reg("a"), reg("k"));
        let columns = vec![("sum", sum), ("c", reg("c")), ("k", reg("k"))];
        let steps = vec![Step::Filter(lt(reg("a"), int(DataType::Int32, 500)))];
        Case { name: "first rows by a sum", steps, sink: first_rows(columns, limit) }
    };
    let mut cases: Vec<Case> = [4, 9, 30, 35]
        .into_iter()
        .flat_map(|limit| {
            [
                by("first rows by 32 bits", "b", limit),
                by("first rows by 64 bits", "c", limit),
                by("first rows by 64 bits without a sign", "x", limit),
                by("first rows by a decimal", "d", limit),
                by("first rows by codes", "f", limit),
                by("first rows by a bool", "g", limit),
                by("first rows by 16 bits", "u", limit),
                by("first rows by a float", "y", limit),
                by("first rows by moments", "m", limit),
            ]
        })
        .collect();
    cases.extend([computed(3), computed(8)]);
    cases
}
