//! Grouping sets as a join: every row meets a row of constants for each set.

use std::borrow::Cow;

use crate::expr::Expr;
use crate::pipeline::{BuildPlan, BuildSource, NamedExpr, Probe, ProbeKind, Program, Sink, Step};
use crate::scalar::Scalar;
use crate::types::{DataType, Field};
use crate::validate::IrError;

/// Name of the output column that tells which set a group is of: its position among the sets.
pub const GROUPING_SET: &str = "grouping_set";

impl Program {
    /// The same program without grouping sets: its rows are joined with constants, a row a set,
    /// and grouped by the set's number and by the keys, which are NULL outside of it.
    ///
    /// # Errors
    /// The program is not valid.
    pub fn without_grouping_sets(&self) -> Result<Cow<'_, Program>, IrError> {
        let Sink::Aggregate { keys, sets, .. } = &self.pipeline.sink else {
            return Ok(Cow::Borrowed(self));
        };
        if sets.is_empty() {
            return Ok(Cow::Borrowed(self));
        }
        let first_register = self.pipeline.registers(&self.builds)?.len();
        let build = build_of(keys, sets);
        let register = |index: usize| {
            let Field { name, data_type, nullable } = build.payload[index].clone();
            Expr::Register { index: first_register + index, data_type, nullable, name }
        };
        let mut grouped: Vec<NamedExpr> = Vec::with_capacity(keys.len() + 1);
        for (index, key) in keys.iter().enumerate() {
            let always = sets.iter().all(|set| set.contains(&index));
            let expr =
                if always { key.expr.clone() } else { inside(register(index + 1), &key.expr) };
            grouped.push(NamedExpr { name: key.name.clone(), expr });
        }
        grouped.push(NamedExpr { name: GROUPING_SET.into(), expr: register(0) });
        let probe = Probe {
            build: self.builds.len(),
            keys: vec![Expr::Literal(Scalar::int(DataType::Int32, 0))],
            kind: ProbeKind::Inner,
            null_equal: false,
            residual: None,
            payload: (0..build.payload.len()).collect(),
            is_optional: false,
        };
        let mut program = self.clone();
        program.builds.push(build);
        program.pipeline.steps.push(Step::Probe(probe));
        if let Sink::Aggregate { keys, sets, .. } = &mut program.pipeline.sink {
            *keys = grouped;
            sets.clear();
        }
        Ok(Cow::Owned(program))
    }
}

/// A key where it belongs to the set, else NULL.
fn inside(in_set: Expr, key: &Expr) -> Expr {
    let branches = vec![(in_set, key.clone())];
    Expr::Case { branches, otherwise: None, data_type: key.data_type() }
}

/// A row a set under one key: its number, and for each group key whether it belongs to the set.
fn build_of(keys: &[NamedExpr], sets: &[Vec<usize>]) -> BuildPlan {
    let row = |(number, set): (usize, &Vec<usize>)| {
        let number = Scalar::int(DataType::Int32, number as i128);
        let belongs = (0..keys.len()).map(|key| Scalar::bool(set.contains(&key)));
        let key = Scalar::int(DataType::Int32, 0);
        [key, number].into_iter().chain(belongs).collect()
    };
    let flag = |key: &NamedExpr| Field::new(format!("by {}", key.name), DataType::Bool, false);
    let number = Field::new(GROUPING_SET, DataType::Int32, false);
    BuildPlan {
        name: "grouping sets".into(),
        source: BuildSource::Values(sets.iter().enumerate().map(row).collect()),
        keys: vec![Field::new("all", DataType::Int32, false)],
        payload: std::iter::once(number).chain(keys.iter().map(flag)).collect(),
    }
}
