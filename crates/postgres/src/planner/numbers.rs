//! Digits of `numeric` that declares none: what a pipeline takes for granted of a column's values, by the statistics
//! that PostgreSQL keeps of them. A value that is otherwise is found when it is read, and leaves the answer to
//! PostgreSQL's own plan; the session remembers it, and takes less for granted from then on.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use headrace_ir::DataType;
use pgrx::pg_sys::{self, Datum, Oid, PlannerInfo};

use super::streamed;
use crate::nodes::{self, WhyNot, why_not};
use crate::translate::{constant, declared_digits, ir_type, stored};

/// The values of a column.
pub struct Numbers {
    /// The type that has them.
    pub data_type: DataType,
    /// Whether that is declared, and not what statistics say.
    pub is_declared: bool,
    /// Digits behind the point that they may show, if they do not all show as many as the type has.
    pub possible: Option<BTreeSet<i8>>,
}

impl From<DataType> for Numbers {
    fn from(data_type: DataType) -> Self {
        Self { data_type, is_declared: true, possible: None }
    }
}

impl Numbers {
    /// The fewest and most digits that each value must show, which is not known beforehand.
    pub fn shows(&self) -> Option<(u8, u8)> {
        let is_alike = !self.is_declared && self.possible.is_none();
        is_alike.then(|| (self.most(), self.most()))
    }

    /// The most digits behind the point that a value may show.
    pub fn most(&self) -> u8 {
        match self.data_type {
            DataType::Decimal128 { scale, .. } => scale.unsigned_abs(),
            _ => 0,
        }
    }
}

/// A column of a table.
pub struct Column {
    pub table: u32,
    pub attribute: i16,
    /// Whether the table is known to have no rows.
    pub is_empty: bool,
}

/// Whether a column is of numbers.
pub unsafe fn is_number(var: &pg_sys::Var) -> bool {
    stored(var.vartype, var.vartypmod).0 == pg_sys::NUMERICOID
}

/// The type of a table's column, and what its numbers show.
pub unsafe fn of_var(root: *mut PlannerInfo, var: &pg_sys::Var) -> Result<Numbers, WhyNot> {
    match ir_type(var.vartype, var.vartypmod) {
        Err(reason) if is_number(var) => {
            let relation = *(*root).simple_rel_array.add(var.varno as usize);
            if relation.is_null()
                || (*nodes::entry_of(root, relation)).rtekind != pg_sys::RTEKind::RTE_RELATION
            {
                return Err(reason);
            }
            of(&streamed::columns(root, relation, var.varattno)?)
        }
        known => Ok(Numbers::from(known?)),
    }
}

/// Columns that are remembered.
const MET_MAX: usize = 1000;

thread_local! {
    /// What was seen, by table and attribute, of values that statistics had not seen.
    static MET: RefCell<HashMap<(u32, i16), Seen>> = RefCell::default();
}

/// Remembers a value of a column that was not as it was taken for granted.
pub unsafe fn meet(table: Oid, attribute: i16, value: Datum) {
    MET.with_borrow_mut(|met| {
        if met.len() >= MET_MAX {
            met.clear();
        }
        let seen = met.entry((table.to_u32(), attribute)).or_default();
        seen.has_others |= seen.add_value(value).is_err();
    });
}

/// What was seen of values.
#[derive(Default)]
struct Seen {
    /// Whether there were values that no decimal has.
    has_others: bool,
    /// Digits before the point.
    whole: u8,
    /// Digits behind it that are shown.
    shown: BTreeSet<i8>,
}

/// Of columns whose values are one column's.
///
/// # Errors
/// They are of another type, or there are no statistics, or a value is none that a pipeline has.
pub unsafe fn of(columns: &[Column]) -> Result<Numbers, WhyNot> {
    let mut seen = Seen::default();
    for column in columns {
        seen.add(column)?;
    }
    seen.numbers()
}

impl Seen {
    unsafe fn add(&mut self, column: &Column) -> Result<(), WhyNot> {
        let table = Oid::from(column.table);
        let (mut oid, mut typmod, mut collation) = (Oid::INVALID, -1, Oid::INVALID);
        let (to_oid, to_typmod) = (&raw mut oid, &raw mut typmod);
        pg_sys::get_atttypetypmodcoll(
            table, column.attribute, to_oid, to_typmod, &raw mut collation,
        );
        let (oid, typmod) = stored(oid, typmod);
        if oid != pg_sys::NUMERICOID {
            return why_not("numeric of values of another type");
        }
        if let Some((precision, scale)) = declared_digits(typmod) {
            self.whole = self.whole.max(precision - scale.unsigned_abs());
            self.shown.insert(scale);
            return Ok(());
        }
        MET.with_borrow(|met| {
            if let Some(met) = met.get(&(column.table, column.attribute)) {
                self.has_others |= met.has_others;
                self.whole = self.whole.max(met.whole);
                self.shown.extend(&met.shown);
            }
        });
        if self.has_others {
            return without_decimals();
        }
        let key = Datum::from(column.attribute);
        let tuple = pg_sys::SearchSysCache3(
            pg_sys::SysCacheIdentifier::STATRELATTINH as i32,
            Datum::from(table),
            key,
            Datum::from(false),
        );
        if tuple.is_null() {
            return if column.is_empty { Ok(()) } else { without_statistics(table) };
        }
        let mut found = Ok(false);
        for kind in [pg_sys::STATISTIC_KIND_HISTOGRAM, pg_sys::STATISTIC_KIND_MCV] {
            found = found.and_then(|found| Ok(self.add_slot(tuple, kind)? || found));
        }
        let is_null =
            (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_statistic>()).stanullfrac >= 1.0;
        pg_sys::ReleaseSysCache(tuple);
        if found? || is_null { Ok(()) } else { without_statistics(table) }
    }

    /// The values that statistics of a kind keep, and whether there are any.
    unsafe fn add_slot(&mut self, tuple: pg_sys::HeapTuple, kind: u32) -> Result<bool, WhyNot> {
        let mut slot = pg_sys::AttStatsSlot::default();
        let flags = pg_sys::ATTSTATSSLOT_VALUES as i32;
        if !pg_sys::get_attstatsslot(&raw mut slot, tuple, kind as i32, Oid::INVALID, flags) {
            return Ok(false);
        }
        let count = usize::try_from(slot.nvalues).unwrap_or(0);
        let added = (0..count).try_for_each(|place| self.add_value(*slot.values.add(place)));
        pg_sys::free_attstatsslot(&raw mut slot);
        added.map(|()| count > 0)
    }

    unsafe fn add_value(&mut self, value: Datum) -> Result<(), WhyNot> {
        let Ok((unscaled, scale)) = constant::shown_decimal(value) else {
            return without_decimals();
        };
        let digits = unscaled.unsigned_abs().checked_ilog10().map_or(0, |log| log as u8 + 1);
        self.whole = self.whole.max(digits.saturating_sub(scale));
        self.shown.insert(scale as i8);
        Ok(())
    }

    /// A type with some room: statistics have not seen every value.
    fn numbers(self) -> Result<Numbers, WhyNot> {
        const MORE_BEFORE: u8 = 2;
        const MORE_BEHIND: u8 = 2;
        /// What floats hold exactly, what 64 bits do, and 128.
        const PRECISIONS: [u8; 3] = [15, 18, 38];
        let seen = self.shown.last().map_or(0, |most| most.unsigned_abs());
        let least = self.whole + seen;
        if least > 38 {
            return why_not("numeric without declared digits, of more than 38 in all");
        }
        let varies = self.shown.len() > 1;
        let behind = if varies { MORE_BEHIND.min(38 - least) } else { 0 };
        let needed = least + behind + MORE_BEFORE;
        let precision = PRECISIONS.into_iter().find(|have| *have >= needed).unwrap_or(38);
        let scale = (seen + behind) as i8;
        let possible = varies.then(|| (0..=scale).collect());
        let data_type = DataType::Decimal128 { precision, scale };
        Ok(Numbers { data_type, is_declared: false, possible })
    }
}

fn without_decimals<T>() -> Result<T, WhyNot> {
    why_not("numeric without declared digits, with NaN, infinities or more than 38 digits")
}

unsafe fn without_statistics<T>(table: Oid) -> Result<T, WhyNot> {
    let name = nodes::owned(pg_sys::get_rel_name(table));
    why_not(format!("numeric without declared digits, of which ANALYZE {name} would tell some"))
}
