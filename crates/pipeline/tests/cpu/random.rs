//! Random tables and expressions from a seed.

use std::sync::Arc;

use arrow_array::StringArray;
use headrace_columns::repr::Dictionary;
use headrace_ir::{
    ArithmeticOp, CastFailure, CompareOp, DataType, Encoding, Expr, OnOverflow, Scalar, Value,
};
use headrace_pipeline::SourceColumn;

use crate::support::*;

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        // SplitMix64, https://prng.di.unimi.it/splitmix64.c
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.below(items.len())]
    }
}

pub const DECIMAL: DataType = DataType::Decimal128 { precision: 9, scale: 2 };
pub const FINE_DECIMAL: DataType = DataType::Decimal128 { precision: 12, scale: 4 };

pub const TYPES: [DataType; 15] = [
    DataType::Bool,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float32,
    DataType::Float64,
    DECIMAL,
    FINE_DECIMAL,
    DataType::Utf8,
    DataType::Date32,
];

const TEXTS: [&str; 9] = ["", "a", "ab", "abc", "b", "ba%", "c_d", "grün", "zz"];

pub fn value(random: &mut Random, data_type: &DataType) -> Value {
    match data_type {
        DataType::Bool => Value::Bool(random.chance(50)),
        DataType::Float32 | DataType::Float64 => {
            let special =
                [0.0, -0.0, 1.5, -2.25, 3.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e20];
            let value = *random.pick(&special);
            Value::Float(if *data_type == DataType::Float32 {
                f64::from(value as f32)
            } else {
                value
            })
        }
        DataType::Utf8 => Value::Utf8((*random.pick(&TEXTS)).into()),
        DataType::Decimal128 { precision, .. } => {
            let largest = 10i128.pow(u32::from(*precision)) - 1;
            let values = [0, 1, -1, 50, -150, 149, 12_345, -99_999, largest, -largest];
            Value::Int(*random.pick(&values))
        }
        DataType::UInt64 if random.chance(20) => Value::Int(u64::MAX.into()),
        data_type => {
            let (min, max) = data_type.integer_range().unwrap_or((0, i64::MAX));
            if random.chance(15) {
                return Value::Int((*random.pick(&[min, max])).into());
            }
            let small = random.below(9) as i64 - 4;
            Value::Int(small.clamp(min, max).into())
        }
    }
}

/// A table with two columns of every type (text also dictionary-coded), and its rows.
pub fn table(random: &mut Random, rows: usize) -> (Table, Vec<Vec<Value>>) {
    let mut table = Table::new("random", rows);
    let mut data = vec![Vec::new(); rows];
    for (i, data_type) in TYPES.iter().chain(&TYPES).chain([&DataType::Utf8]).enumerate() {
        let nullable = random.chance(60);
        let null_percent = *random.pick(&[0, 10, 50, 100]);
        let values: Vec<Value> = (0..rows)
            .map(|_| match nullable && random.chance(null_percent) {
                true => Value::Null,
                false => value(random, data_type),
            })
            .collect();
        let coded = *data_type == DataType::Utf8 && i >= TYPES.len();
        let mut column =
            if coded { dictionary(random, &values) } else { plain(&values, data_type) };
        column.info.may_have_nulls = nullable;
        if nullable {
            column.validity = Some(pack_bits(values.iter().map(|v| *v != Value::Null)));
        }
        // Half of the columns begin at an odd address.
        if random.chance(50) {
            column.skip = 1;
            column.values.insert(0, 0xaa);
        }
        table.push(&format!("c{i}"), data_type.clone(), nullable, column);
        data.iter_mut().zip(values).for_each(|(row, value)| row.push(value));
    }
    (table, data)
}

fn plain(values: &[Value], data_type: &DataType) -> TestColumn {
    let mut column = TestColumn { encoding: Some(Encoding::Plain), ..TestColumn::default() };
    if *data_type == DataType::Bool {
        column.encoding = Some(Encoding::Bits);
        column.values = pack_bits(values.iter().map(|v| *v == Value::Bool(true)));
        return column;
    }
    if *data_type == DataType::Utf8 {
        column.encoding = Some(Encoding::Offsets { offset_bytes: 8 });
        let mut offsets = vec![0u64];
        for value in values {
            if let Value::Utf8(text) = value {
                column.values.extend(text.as_bytes());
            }
            offsets.push(column.values.len() as u64);
        }
        column.offsets = Some(offsets.iter().flat_map(|v| v.to_le_bytes()).collect());
        return column;
    }
    let width = data_type.plain_width_bytes().unwrap();
    for value in values {
        let bytes = match value {
            Value::Int(v) => v.to_le_bytes()[..width].to_vec(),
            Value::Float(v) if width == 4 => (*v as f32).to_le_bytes().to_vec(),
            Value::Float(v) => v.to_le_bytes().to_vec(),
            // Rubbish under a NULL must not matter.
            _ => vec![0xff; width],
        };
        column.values.extend(bytes);
    }
    column
}

/// Codes of a file's dictionary in any order, translated to the table's sorted one.
fn dictionary(random: &mut Random, values: &[Value]) -> TestColumn {
    let mut sorted = TEXTS.to_vec();
    sorted.sort_unstable();
    let mut file: Vec<&str> = sorted.clone();
    for i in (1..file.len()).rev() {
        file.swap(i, random.below(i + 1));
    }
    let code_bytes = *random.pick(&[1u8, 2, 4, 8]);
    let mut column = TestColumn {
        encoding: Some(Encoding::Dictionary { code_bytes }),
        remap: Some(file.iter().map(|t| sorted.binary_search(t).unwrap() as i32).collect()),
        info: SourceColumn {
            dictionary: Some(Arc::new(Dictionary { values: StringArray::from(sorted) })),
            ..SourceColumn::default()
        },
        ..TestColumn::default()
    };
    for value in values {
        let code = match value {
            Value::Utf8(text) => file.iter().position(|t| t == text).unwrap() as i64,
            _ => -7,
        };
        column.values.extend(&code.to_le_bytes()[..code_bytes as usize]);
    }
    column
}

fn overflow(random: &mut Random) -> OnOverflow {
    match random.chance(70) {
        true => OnOverflow::Wrap,
        false => *random.pick(&[OnOverflow::Error, OnOverflow::Strict]),
    }
}

/// An expression of a type over the columns of a table.
pub fn expr(random: &mut Random, table: &Table, data_type: &DataType, depth: usize) -> Expr {
    if depth == 0 || random.chance(15) {
        return leaf(random, table, data_type);
    }
    if random.chance(15) {
        return case(random, table, data_type, depth);
    }
    match data_type {
        DataType::Bool => condition(random, table, depth),
        DataType::Utf8 | DataType::Date32 => leaf(random, table, data_type),
        DataType::Decimal128 { .. } => decimal(random, table, data_type, depth),
        _ if random.chance(25) => cast(random, table, data_type, depth),
        _ if random.chance(10) => Expr::Negate {
            value: Box::new(expr(random, table, data_type, depth - 1)),
            on_overflow: overflow(random),
        },
        _ => {
            let ops = [
                ArithmeticOp::Add,
                ArithmeticOp::Subtract,
                ArithmeticOp::Multiply,
                ArithmeticOp::Divide,
                ArithmeticOp::Modulo,
            ];
            // Divisions fail often; keep them rare.
            let op = if random.chance(80) { *random.pick(&ops[..3]) } else { *random.pick(&ops) };
            Expr::Arithmetic {
                op,
                left: Box::new(expr(random, table, data_type, depth - 1)),
                right: Box::new(expr(random, table, data_type, depth - 1)),
                data_type: data_type.clone(),
                on_overflow: overflow(random),
            }
        }
    }
}

fn leaf(random: &mut Random, table: &Table, data_type: &DataType) -> Expr {
    if random.chance(30) {
        let value = if random.chance(10) { Value::Null } else { value(random, data_type) };
        return Expr::Literal(Scalar::new(data_type.clone(), value));
    }
    let columns: Vec<usize> =
        (0..table.fields.len()).filter(|&i| table.fields[i].data_type == *data_type).collect();
    let index = *random.pick(&columns);
    let field = &table.fields[index];
    reg(index, data_type.clone(), field.nullable, &field.name)
}

fn case(random: &mut Random, table: &Table, data_type: &DataType, depth: usize) -> Expr {
    let branches = (0..1 + random.below(2))
        .map(|_| {
            let condition = condition(random, table, depth - 1);
            (condition, expr(random, table, data_type, depth - 1))
        })
        .collect();
    let otherwise = random.chance(60).then(|| Box::new(expr(random, table, data_type, depth - 1)));
    Expr::Case { branches, otherwise, data_type: data_type.clone() }
}

fn decimal(random: &mut Random, table: &Table, data_type: &DataType, depth: usize) -> Expr {
    if random.chance(40) {
        return cast(random, table, data_type, depth);
    }
    let op = *random.pick(&[ArithmeticOp::Add, ArithmeticOp::Subtract]);
    if *data_type == FINE_DECIMAL {
        // The scale of a product is the sum of scales.
        let product = random.chance(30);
        let (op, side) =
            if product { (ArithmeticOp::Multiply, DECIMAL) } else { (op, FINE_DECIMAL) };
        return Expr::Arithmetic {
            op,
            left: Box::new(leaf(random, table, &side)),
            right: Box::new(leaf(random, table, &if product { DECIMAL } else { side })),
            data_type: data_type.clone(),
            on_overflow: OnOverflow::Error,
        };
    }
    let divisions = [ArithmeticOp::Divide, ArithmeticOp::Modulo];
    let op = if random.chance(25) { *random.pick(&divisions) } else { op };
    Expr::Arithmetic {
        op,
        left: Box::new(leaf(random, table, &DECIMAL)),
        right: Box::new(leaf(random, table, &DECIMAL)),
        data_type: data_type.clone(),
        on_overflow: OnOverflow::Error,
    }
}

fn cast(random: &mut Random, table: &Table, to: &DataType, depth: usize) -> Expr {
    let decimal = matches!(to, DataType::Decimal128 { .. });
    let from = loop {
        let from = random.pick(&TYPES);
        // Floats round on their way to decimals, bools do not get there.
        let possible = from.is_numeric() && !(decimal && from.is_float())
            || *from == DataType::Bool && !decimal;
        if possible && !(*to == DataType::Bool && matches!(from, DataType::Decimal128 { .. })) {
            break from;
        }
    };
    Expr::Cast {
        value: Box::new(expr(random, table, from, depth - 1)),
        to: to.clone(),
        on_failure: if random.chance(70) { CastFailure::Null } else { CastFailure::Error },
    }
}

pub fn condition(random: &mut Random, table: &Table, depth: usize) -> Expr {
    if depth == 0 {
        return leaf(random, table, &DataType::Bool);
    }
    let operands = |random: &mut Random| {
        (0..random.below(4)).map(|_| condition(random, table, depth - 1)).collect()
    };
    match random.below(9) {
        0 => Expr::And(operands(random)),
        1 => Expr::Or(operands(random)),
        2 => Expr::Not(Box::new(condition(random, table, depth - 1))),
        3 => {
            let data_type = random.pick(&TYPES);
            Expr::IsNull(Box::new(expr(random, table, data_type, depth - 1)))
        }
        4 => in_list(random, table, depth),
        5 => Expr::Like {
            value: Box::new(expr(random, table, &DataType::Utf8, depth - 1)),
            pattern: (*random.pick(&[
                "a%", "%b", "%b%", "_", "a_c", "%", "", "ba\\%", "%\\_d", "gr_n", "%a%b%",
            ]))
            .into(),
            escape: None,
            negated: random.chance(30),
            case_insensitive: false,
        },
        _ => {
            let ops = [
                CompareOp::Eq,
                CompareOp::Ne,
                CompareOp::Lt,
                CompareOp::Le,
                CompareOp::Gt,
                CompareOp::Ge,
            ];
            let op = *random.pick(&ops);
            let left = random.pick(&TYPES).clone();
            let right = match left {
                DECIMAL if random.chance(50) => FINE_DECIMAL,
                ref same => same.clone(),
            };
            compare(
                op,
                expr(random, table, &left, depth - 1),
                expr(random, table, &right, depth - 1),
            )
        }
    }
}

fn in_list(random: &mut Random, table: &Table, depth: usize) -> Expr {
    let data_type = random.pick(&TYPES).clone();
    let many = random.chance(30);
    let constants = if many { 12 } else { random.below(4) };
    let list = (0..constants)
        .map(|_| match random.chance(8) {
            true => Scalar::null(data_type.clone()),
            false => Scalar::new(data_type.clone(), value(random, &data_type)),
        })
        .collect();
    Expr::InList {
        value: Box::new(expr(random, table, &data_type, depth - 1)),
        list,
        negated: random.chance(40),
    }
}
