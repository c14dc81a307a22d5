//! Moments moved by time zones and intervals, in microseconds.

use headrace_ir::function::CALENDAR_YEARS;
use headrace_ir::moment::FIRST_MICROSECOND;
use headrace_ir::{Interval, TimeZone};

use crate::ColumnError;
use crate::calendar::{DAY_SECONDS, clipped_day, date};
use crate::convert::empty_data;
use crate::fault::Target;
use crate::function::checked;
use crate::vector::{Data, Vector};

/// What moves a moment: the constant argument of [`headrace_ir::Function::LocalTime`] and its kin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shift {
    /// From UTC to local time.
    ToLocal(TimeZone),
    /// From local time to UTC.
    ToUtc(TimeZone),
    /// To later.
    By(Interval),
}

const SECOND: i64 = 1_000_000;
const DAY: i64 = DAY_SECONDS * SECOND;

/// A column moved.
pub fn shift<'a>(
    target: Target<'_>,
    by: &Shift,
    vector: &Vector<'_>,
) -> Result<Vector<'a>, ColumnError> {
    if vector.is_null_constant() {
        return Ok(Vector::constant(empty_data(target.repr, 1)?, true));
    }
    let Data::I64(moments) = &vector.data else {
        return Err(ColumnError::Internal(format!("{} is of no moment", target.text)));
    };
    let valid = vector.validity.as_deref();
    let moved = match by {
        Shift::By(interval) => checked(moments, valid, |moment| later(moment, *interval)),
        Shift::ToLocal(zone) => {
            let mut clock = Clock { zone, next: 0 };
            checked(moments, valid, |moment| clock.local(moment))
        }
        Shift::ToUtc(zone) => {
            let mut clock = Clock { zone, next: 0 };
            checked(moments, valid, |moment| clock.instant(moment))
        }
    };
    let moved = moved.map_err(|fault| fault.at(target))?;
    let mut result = Vector::with_validity(Data::I64(moved.into()), valid.map(<[u8]>::to_vec));
    result.constant = vector.constant;
    Ok(result)
}

/// `None`: before the first moment, or beyond 64 bits.
fn later(moment: i64, by: Interval) -> Option<i64> {
    let known = |moment: i64| (moment >= FIRST_MICROSECOND).then_some(moment);
    let mut moment = moment;
    if by.months != 0 {
        // All of 64 bits lie in the calendar.
        let date = date(moment.div_euclid(DAY) as i32);
        let months = i64::from(date.year) * 12 + i64::from(date.month - 1) + i64::from(by.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as i32 + 1);
        let year = i32::try_from(year).ok()?;
        if !(CALENDAR_YEARS.0..=CALENDAR_YEARS.1).contains(&year) {
            return None;
        }
        let day = i64::from(clipped_day(year, month, date.day));
        moment = known(day.checked_mul(DAY)?.checked_add(moment.rem_euclid(DAY))?)?;
    }
    if by.days != 0 {
        moment = known(moment.checked_add(i64::from(by.days).checked_mul(DAY)?)?)?;
    }
    known(moment.checked_add(by.microseconds)?)
}

/// Looks moments up in a zone, from where the last one was: those of a table are often near to each other.
struct Clock<'z> {
    zone: &'z TimeZone,
    next: usize,
}

impl Clock<'_> {
    /// The first transition after a second, by its number.
    #[inline]
    fn next_after(&mut self, second: i64) -> usize {
        let transitions = &self.zone.transitions;
        let is_after = transitions.get(self.next).is_none_or(|(at, _)| *at > second);
        let is_first = self.next == 0 || transitions[self.next - 1].0 <= second;
        if !(is_after && is_first) {
            self.next = transitions.partition_point(|(at, _)| *at <= second);
        }
        self.next
    }

    /// Seconds that local time is ahead before a transition.
    fn offset_before(&self, transition: usize) -> i64 {
        match transition.checked_sub(1) {
            Some(last) => self.zone.transitions[last].1.into(),
            None => self.zone.first_offset_seconds.into(),
        }
    }

    fn local(&mut self, moment: i64) -> Option<i64> {
        let second = moment.div_euclid(SECOND);
        let next = self.next_after(second);
        let offset = self.offset_before(next);
        let is_known = self.zone.known_seconds.contains(&second);
        is_known.then(|| moment.checked_add(offset * SECOND)).flatten()
    }

    fn instant(&mut self, local: i64) -> Option<i64> {
        let second = local.div_euclid(SECOND);
        // No clock is a day ahead or behind.
        let (from, to) = (second - DAY_SECONDS, second + DAY_SECONDS);
        if !(self.zone.known_seconds.contains(&from) && self.zone.known_seconds.contains(&to)) {
            return None;
        }
        let next = self.next_after(from);
        let before = self.offset_before(next);
        let offset = match self.zone.transitions.get(next) {
            None => before,
            Some(&(at, after)) => {
                let after = i64::from(after);
                let (by_before, by_after) = (second - before, second - after);
                if by_before < at && by_after < at {
                    before
                } else if by_before > at && by_after >= at {
                    after
                } else {
                    before.min(after)
                }
            }
        };
        local.checked_sub(offset * SECOND)
    }
}
