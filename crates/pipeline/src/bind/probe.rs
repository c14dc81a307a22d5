//! Lowers probes.

use std::sync::Arc;

use headrace_columns::repr::Repr;
use headrace_ir::{DataType, Probe, ProbeKind, Register, ValueRange};

use crate::WhyNot;
use crate::bind::expr::decoded;
use crate::bind::{Binder, range, selectivity};
use crate::bound::{BoundExpr, BoundProbe, RegisterInfo};
use crate::build::BuildTable;

impl Binder {
    pub(super) fn probe(
        &mut self,
        probe: &Probe,
        build: &Arc<BuildTable>,
    ) -> Result<BoundProbe, WhyNot> {
        if probe.null_equal && build.has_null_key && !build.nulls_equal {
            return Err(WhyNot::new(format!(
                "build {} was made without its NULL keys, which are asked for",
                build.name
            )));
        }
        let keys = probe.keys.iter().map(|key| self.expr(key)).collect::<Result<Vec<_>, _>>()?;
        let (build, keys) = matched_keys(probe, build, keys)?;
        let first_register = self.registers.len();
        self.append_payload(probe, &build)?;
        let residual = probe.residual.as_ref().map(|e| self.expr(e)).transpose()?;
        let appends = matches!(probe.kind, ProbeKind::Inner | ProbeKind::Left);
        if appends {
            let duplicates = build.duplicates_max().max(1);
            self.rows_max = self.rows_max.saturating_mul(u128::from(duplicates));
        }
        if probe.kind == ProbeKind::Mark {
            let mark = RegisterInfo {
                name: format!("{}_mark", build.name),
                data_type: DataType::Bool,
                repr: Repr::Bool,
                nullable: false,
                range: range::type_range(&DataType::Bool),
            };
            let proven = mark.range;
            self.append(mark, proven);
        }
        let matching = match &residual {
            None => matching_share(&build, &keys),
            Some(residual) => matching_share(&build, &keys) * selectivity::of(residual),
        };
        let selectivity = match probe.kind {
            ProbeKind::Inner => matching * average_duplicates(&build),
            ProbeKind::Semi => matching.min(1.0),
            ProbeKind::Anti | ProbeKind::NullAwareAnti => (1.0 - matching).max(0.0),
            ProbeKind::Left => (matching * average_duplicates(&build)).max(1.0),
            ProbeKind::Mark => 1.0,
        };
        Ok(BoundProbe {
            build,
            keys,
            kind: probe.kind,
            null_equal: probe.null_equal,
            residual,
            payload: probe.payload.clone(),
            first_register,
            selectivity,
        })
    }

    fn append_payload(&mut self, probe: &Probe, build: &BuildTable) -> Result<Register, WhyNot> {
        // Kinds that look no further than whether there is a match have payload only for
        // their residual; outside of it the registers are never read.
        let outer = probe.kind == ProbeKind::Left;
        for &index in &probe.payload {
            let column = build.payload.get(index).ok_or_else(|| {
                WhyNot::new(format!("build {} has no payload column {index}", build.name))
            })?;
            // The build has seen all its rows, so its range is exact. Without any value (no rows,
            // or NULLs alone) whatever holds for no value holds, and one digit is enough.
            let no_value = ValueRange { min: 0, max: 0 };
            let integers = column.repr.is_integer_like();
            let range = column.range.or(integers.then_some(no_value));
            let info = RegisterInfo {
                name: column.field.name.clone(),
                data_type: column.field.data_type.clone(),
                repr: column.repr.clone(),
                nullable: outer || column.validity.is_some(),
                range,
            };
            self.append(info, range);
        }
        Ok(self.registers.len())
    }
}

/// Keys in the representations of the build's keys; a build on text that is probed by a
/// dictionary column is looked up by code.
fn matched_keys(
    probe: &Probe,
    build: &Arc<BuildTable>,
    keys: Vec<BoundExpr>,
) -> Result<(Arc<BuildTable>, Vec<BoundExpr>), WhyNot> {
    if let ([key], [Repr::Str]) = (keys.as_slice(), build.key_reprs.as_slice())
        && let (Repr::Code(dictionary), false) = (&key.repr, build.nulls_equal || probe.null_equal)
    {
        let build = build
            .keyed_by_code(dictionary)
            .map_err(|e| WhyNot::new(format!("build {} by dictionary code: {e}", build.name)))?;
        return Ok((build, keys));
    }
    let keys = keys
        .into_iter()
        .zip(&build.key_reprs)
        .map(|(key, repr)| match repr {
            Repr::Str => decoded(key),
            _ => key,
        })
        .collect::<Vec<_>>();
    for (key, repr) in keys.iter().zip(&build.key_reprs) {
        if !key.repr.same_as(repr) {
            return Err(WhyNot::new(format!(
                "key {} is held as {:?}, the key of build {} as {repr:?}",
                key.text, key.repr, build.name
            )));
        }
    }
    Ok((Arc::clone(build), keys))
}

/// Share of streamed rows that are expected to find a match: of a foreign key's values as
/// many as rows were left of the table that the build comes from.
fn matching_share(build: &BuildTable, keys: &[BoundExpr]) -> f64 {
    let distinct_rows = build.rows as f64 / average_duplicates(build);
    let width = match keys {
        [key] => key.range.map(|r| r.max as f64 - r.min as f64 + 1.0),
        _ => None,
    };
    match (build.source_rows, width) {
        (Some(rows), _) if rows > 0 => (build.rows as f64 / rows as f64).min(1.0),
        (_, Some(width)) if width >= 1.0 => (distinct_rows / width).min(1.0),
        _ => 1.0,
    }
}

/// Rows of a key, on average.
fn average_duplicates(build: &BuildTable) -> f64 {
    if build.unique { 1.0 } else { (build.duplicates_max() as f64 / 2.0).max(1.0) }
}
