//! Bound programs by hand.

use std::sync::Arc;

use headrace_columns::repr::Repr;
use headrace_cuda::SegmentLayout;
use headrace_cuda::parts::{ColumnForm, ColumnLayout};
use headrace_ir::{
    AggregateFunction, AggregateOutput, ArithmeticOp, CompareOp, DataType, Field, OnOverflow,
    ProbeKind, Scalar, ValueRange,
};
use headrace_pipeline::bound::*;
use headrace_pipeline::build::{
    BuildId, BuildIndex, BuildTable, PayloadColumn, PayloadData, Presence,
};

/// A program under construction.
pub struct Star {
    pub registers: Vec<RegisterInfo>,
    pub source_registers: usize,
    pub steps: Vec<BoundStep>,
    builds: usize,
}

impl Star {
    /// A source of Int32 columns without NULLs.
    pub fn over(columns: &[&str]) -> Self {
        let registers = columns
            .iter()
            .map(|name| RegisterInfo {
                name: (*name).to_string(),
                data_type: DataType::Int32,
                repr: Repr::I32,
                nullable: false,
                range: None,
            })
            .collect();
        Self { registers, source_registers: columns.len(), steps: vec![], builds: 0 }
    }

    pub fn layout(&self) -> SegmentLayout {
        let columns = self.registers[..self.source_registers]
            .iter()
            .map(|r| ColumnLayout {
                form: match r.repr {
                    Repr::Bool => ColumnForm::Bits,
                    Repr::Code(_) => ColumnForm::Codes(4),
                    _ => ColumnForm::Plain,
                },
                validity: r.nullable,
            })
            .collect();
        SegmentLayout { columns }
    }

    pub fn register(&self, name: &str) -> BoundExpr {
        let index = self.registers.iter().position(|r| r.name == name).unwrap();
        let info = &self.registers[index];
        BoundExpr {
            kind: BoundKind::Register(index),
            data_type: info.data_type.clone(),
            repr: info.repr.clone(),
            nullable: info.nullable,
            range: info.range,
            text: name.into(),
        }
    }

    pub fn filter(mut self, column: &str, op: CompareOp, value: i32, selectivity: f64) -> Self {
        let expr = compare(op, self.register(column), int32(value));
        self.steps.push(BoundStep::Filter { expr, selectivity });
        self
    }

    pub fn probe(
        mut self,
        build: BuildTable,
        key: &str,
        kind: ProbeKind,
        selectivity: f64,
    ) -> Self {
        let first_register = self.registers.len();
        for payload in &build.payload {
            self.registers.push(RegisterInfo {
                name: payload.field.name.clone(),
                data_type: payload.field.data_type.clone(),
                repr: payload.repr.clone(),
                nullable: payload.validity.is_some() || kind == ProbeKind::Left,
                range: payload.range,
            });
        }
        let payload = (0..build.payload.len()).collect();
        self.steps.push(BoundStep::Probe(BoundProbe {
            build: Arc::new(build),
            keys: vec![self.register(key)],
            kind,
            null_equal: false,
            residual: None,
            payload,
            first_register,
            selectivity,
        }));
        self.builds += 1;
        self
    }

    /// `sum(argument)` by payload registers.
    pub fn sum_by(self, argument: BoundExpr, keys: &[&str]) -> Arc<Bound> {
        let mut stride = 1;
        let mut bound_keys: Vec<BoundKey> = keys
            .iter()
            .rev()
            .map(|name| {
                let expr = self.register(name);
                let range = expr.range.unwrap();
                let cardinality = (range.max - range.min + 1) as u64;
                let dense = DenseKey { min: range.min, cardinality, has_null: false, stride };
                stride *= cardinality;
                let field = Field::new(*name, expr.data_type.clone(), false);
                BoundKey { field, expr, dense: Some(dense) }
            })
            .collect();
        bound_keys.reverse();
        let call = BoundCall {
            field: Field::new("total", DataType::Int64, true),
            function: AggregateFunction::Sum,
            value: 1,
            count: 0,
            on_overflow: OnOverflow::Error,
            argument_type: Some(argument.data_type.clone()),
            text: format!("sum({})", argument.text).into(),
        };
        let accumulators = vec![
            Accumulator::rows(),
            Accumulator {
                kind: AccumulatorKind::SumI64,
                argument: Some(argument),
                ..Accumulator::rows()
            },
        ];
        let sink = BoundSink::Aggregate {
            keys: bound_keys,
            grouping: Grouping::Dense { groups: stride },
            accumulators,
            calls: vec![call],
            output: AggregateOutput::Final,
        };
        self.finish(sink)
    }

    pub fn finish(self, sink: BoundSink) -> Arc<Bound> {
        Arc::new(Bound {
            table: "lineorder".into(),
            source_registers: self.source_registers,
            registers: self.registers,
            places: (0..self.steps.len()).collect(),
            steps: self.steps,
            sink,
            rows_max: 600_037_902,
            remaps: vec![],
        })
    }
}

pub fn int32(value: i32) -> BoundExpr {
    BoundExpr {
        kind: BoundKind::Literal(Scalar::int(DataType::Int32, value.into())),
        data_type: DataType::Int32,
        repr: Repr::I32,
        nullable: false,
        range: Some(ValueRange { min: value.into(), max: value.into() }),
        text: value.to_string().into(),
    }
}

pub fn compare(op: CompareOp, left: BoundExpr, right: BoundExpr) -> BoundExpr {
    BoundExpr {
        data_type: DataType::Bool,
        repr: Repr::Bool,
        nullable: left.nullable || right.nullable,
        range: None,
        text: format!("{} {op} {}", left.text, right.text).into(),
        kind: BoundKind::Compare { op, left: Box::new(left), right: Box::new(right) },
    }
}

/// Arithmetic that cannot overflow.
pub fn arithmetic(op: ArithmeticOp, left: BoundExpr, right: BoundExpr) -> BoundExpr {
    BoundExpr {
        data_type: left.data_type.clone(),
        repr: left.repr.clone(),
        nullable: left.nullable || right.nullable,
        range: None,
        text: format!("{} {op} {}", left.text, right.text).into(),
        kind: BoundKind::Arithmetic {
            op,
            left: Box::new(left),
            right: Box::new(right),
            on_overflow: OnOverflow::Error,
            cannot_overflow: true,
        },
    }
}

/// Name, smallest value, number of values, and the value of a key less the smallest.
pub type BytePayload<'a> = (&'a str, i64, u8, &'a dyn Fn(u64) -> u8);

/// A direct build over one Int32 key. `payload` gives name, number of values and the value of
/// a key; keys for which `keep` is false are absent.
pub fn direct_build(
    name: &str,
    key: &str,
    base: i64,
    domain: u64,
    keep: impl Fn(u64) -> bool,
    payload: &[BytePayload<'_>],
) -> BuildTable {
    let mut present = vec![0u64; domain.div_ceil(64) as usize];
    let mut rows = 0;
    for i in (0..domain).filter(|&i| keep(i)) {
        present[i as usize / 64] |= 1 << (i % 64);
        rows += 1;
    }
    let payload = payload
        .iter()
        .map(|(name, base, values, value)| PayloadColumn {
            field: Field::new(*name, DataType::Int32, false),
            repr: Repr::I32,
            range: Some(ValueRange { min: *base, max: *base + i64::from(*values) - 1 }),
            data: PayloadData::U8 {
                base: *base,
                raw: (0..domain).map(|i| if keep(i) { value(i) } else { u8::MAX }).collect(),
            },
            validity: None,
        })
        .collect();
    BuildTable {
        name: name.into(),
        keys: vec![Field::new(key, DataType::Int32, false)],
        key_reprs: vec![Repr::I32],
        rows,
        source_rows: None,
        nulls_equal: false,
        has_null_key: false,
        unique: true,
        index: BuildIndex::Direct(Presence { base, domain, words: present }),
        payload,
        bytes: 0,
        id: BuildId::default(),
    }
}
