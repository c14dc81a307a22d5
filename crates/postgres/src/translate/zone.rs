//! Time zones of the server, as far as they are written down in advance.

use std::ffi::{c_int, c_long};

use headrace_ir::TimeZone;
use pgrx::pg_sys;

use crate::nodes::{self, WhyNot, why_not};

const DAY_SECONDS: i64 = 86_400;

/// From 3988 BC on, so that not even a century that began before is out of the server's calendar.
const FIRST_SECOND: i64 = -188_000_000_000;

/// To the year 2500 where a zone's offset goes on changing, which is many enough transitions; where it does
/// not, as far as parts of moments are known.
const CHANGING_END: i64 = 16_725_225_600;
const CONSTANT_END: i64 = 8_200_000_000_000;

/// The session's zone, as it is now.
pub unsafe fn session() -> Result<TimeZone, WhyNot> {
    of(pg_sys::session_timezone)
}

/// The zone of a name that is no abbreviation: those may mean something else.
pub unsafe fn named(name: &str) -> Result<TimeZone, WhyNot> {
    if !name.contains('/') && name != "UTC" {
        return why_not(format!("the time zone {name}, which may be an abbreviation"));
    }
    let zone = pg_sys::pg_tzset(nodes::c_string(name).as_ptr());
    if zone.is_null() { why_not(format!("the time zone {name}")) } else { of(zone) }
}

unsafe fn of(zone: *mut pg_sys::pg_tz) -> Result<TimeZone, WhyNot> {
    let name = nodes::owned(pg_sys::pg_get_timezone_name(zone));
    let refused = || WhyNot(format!("the time zone {name}"));
    let (mut second, mut first_offset) = (FIRST_SECOND, None);
    let mut transitions: Vec<(i64, i32)> = Vec::new();
    let end = loop {
        let (mut before, mut after): (c_long, c_long) = (0, 0);
        let (mut is_before, mut is_after): (c_int, c_int) = (0, 0);
        let mut boundary = 0;
        let found = pg_sys::pg_next_dst_boundary(
            &second, &mut before, &mut is_before, &mut boundary, &mut after, &mut is_after, zone,
        );
        let before = i32::try_from(before).map_err(|_| refused())?;
        let known = *first_offset.get_or_insert(before);
        if before != transitions.last().map_or(known, |(_, offset)| *offset) {
            return Err(refused());
        }
        match found {
            0 => break CONSTANT_END,
            1 if boundary >= CHANGING_END => break CHANGING_END,
            1 if boundary > second => {
                transitions.push((boundary, i32::try_from(after).map_err(|_| refused())?));
                second = boundary;
            }
            _ => return Err(refused()),
        }
    };
    let first_offset_seconds = first_offset.unwrap_or(0);
    let mut offset = first_offset_seconds;
    let mut is_so = shows(zone, FIRST_SECOND, offset);
    for (second, after) in &transitions {
        is_so &= shows(zone, second - 1, offset) && shows(zone, *second, *after);
        offset = *after;
    }
    match is_so && shows(zone, end - 1, offset) {
        true => Ok(TimeZone {
            name,
            known_seconds: FIRST_SECOND..end,
            first_offset_seconds,
            transitions,
        }),
        // Such as one with leap seconds.
        false => Err(refused()),
    }
}

/// Whether clocks are ahead by an offset at a second.
unsafe fn shows(zone: *const pg_sys::pg_tz, second: i64, offset: i32) -> bool {
    let Some(shown) = pg_sys::pg_localtime(&second, zone).as_ref() else { return false };
    let clock = i64::from((shown.tm_hour * 60 + shown.tm_min) * 60 + shown.tm_sec);
    let ahead = i64::from(offset);
    shown.tm_gmtoff == ahead
        && clock == (second + ahead).rem_euclid(DAY_SECONDS)
        && ahead.abs() < DAY_SECONDS
}
