// The proleptic Gregorian calendar in whole numbers: what src/calendar.rs does, line by line.
#pragma once
#include "headrace/types.cuh"

namespace hr {

// Quotients towards minus infinity; `b` is positive.
template <typename T> HR_DEVICE T floor_divide(T a, T b) { return a / b - T(a % b < 0); }
template <typename T> HR_DEVICE T floor_modulo(T a, T b) { const T rest = a % b; return rest < 0 ? rest + b : rest; }

struct Date { i32 year, month, day, day_of_year; bool is_leap; };

// The day that is so many days after 1970-01-01, fewer than 2^30. Eras of 400 years begin in March,
// so that a leap day is a year's last day.
HR_DEVICE Date date_of(i32 days)
{
    const i32 shifted = days + 719468;
    const i32 era = floor_divide<i32>(shifted, 146097);
    const u32 day_of_era = u32(shifted - era * 146097);
    const u32 year_of_era = (day_of_era - day_of_era / 1460u + day_of_era / 36524u - day_of_era / 146096u) / 365u;
    const u32 from_march = day_of_era - (365u * year_of_era + year_of_era / 4u - year_of_era / 100u);
    const u32 month_from_march = (5u * from_march + 2u) / 153u;
    const bool after_december = month_from_march >= 10u;
    const u32 year_in_era = year_of_era + u32(after_december);
    Date date;
    date.day = i32(from_march - (153u * month_from_march + 2u) / 5u) + 1;
    date.month = i32(month_from_march) + (after_december ? -9 : 3);
    date.is_leap = year_in_era % 4u == 0u && (year_in_era % 100u != 0u || year_in_era % 400u == 0u);
    date.day_of_year = i32(from_march) + (after_december ? -305 : 60 + i32(date.is_leap));
    date.year = era * 400 + i32(year_in_era);
    return date;
}

// Days since Monday.
HR_DEVICE i32 weekday_of(i32 days) { return floor_modulo<i32>(days + 3, 7); }

// Whether a day lies in the years -262143 to 262142, and any such day for one that does not.
template <typename T> HR_DEVICE bool in_calendar(T days) { return days >= T(-96465292) && days <= T(95026236); }
template <typename T> HR_DEVICE i32 calendar_day(T days) { return in_calendar<T>(days) ? i32(days) : 0; }

// `*out` is a day later by so many; the answer is whether dates reach that far.
HR_DEVICE bool days_added(i32 day, i32 more, i32* out)
{
    const i64 later = i64(day) + more;
    *out = i32(later);
    return later >= -2440588 && later < 2145042906;
}

// Parts of a day that lies in the calendar.
HR_DEVICE i32 part_year(i32 days) { return date_of(days).year; }
HR_DEVICE i32 part_quarter(i32 days) { return (date_of(days).month + 2) / 3; }
HR_DEVICE i32 part_month(i32 days) { return date_of(days).month; }
HR_DEVICE i32 part_day(i32 days) { return date_of(days).day; }
HR_DEVICE i32 part_doy(i32 days) { return date_of(days).day_of_year; }
// A week belongs to the year of its Thursday.
HR_DEVICE i32 part_week(i32 days) { return (date_of(days - weekday_of(days) + 3).day_of_year + 6) / 7; }
HR_DEVICE i32 part_isoyear(i32 days) { return date_of(days - weekday_of(days) + 3).year; }
HR_DEVICE i32 part_dow(i32 days) { return (weekday_of(days) + 1) % 7; }
HR_DEVICE i32 part_isodow(i32 days) { return weekday_of(days) + 1; }

// The day of a moment with `ticks` a second, and the second of that day.
HR_DEVICE i64 day_of(i64 moment, i64 ticks) { return floor_divide<i64>(moment, 86400 * ticks); }
HR_DEVICE i32 second_of(i64 moment, i64 ticks) { return i32(floor_modulo<i64>(floor_divide<i64>(moment, ticks), 86400)); }
HR_DEVICE i32 part_hour(i64 moment, i64 ticks) { return second_of(moment, ticks) / 3600; }
HR_DEVICE i32 part_minute(i64 moment, i64 ticks) { return second_of(moment, ticks) / 60 % 60; }
HR_DEVICE i32 part_second(i64 moment, i64 ticks) { return second_of(moment, ticks) % 60; }
// Seconds of the minute and their fraction in `parts` a second.
HR_DEVICE i32 fraction_of(i64 moment, i64 ticks, i64 parts)
{
    const i64 rest = floor_modulo<i64>(moment, ticks);
    const i64 fraction = ticks >= parts ? rest / (ticks / parts) : rest * (parts / ticks);
    return i32(part_second(moment, ticks) * parts + fraction);
}
HR_DEVICE i32 part_millisecond(i64 moment, i64 ticks) { return fraction_of(moment, ticks, 1000); }
HR_DEVICE i32 part_microsecond(i64 moment, i64 ticks) { return fraction_of(moment, ticks, 1000000); }

// Days of a part of at least a week that are over; eras have whole weeks.
HR_DEVICE i32 day_of_its_era(i64 days) { return i32(floor_modulo<i64>(days, 146097)); }
HR_DEVICE i64 begun_week(i64 days) { return weekday_of(day_of_its_era(days)); }
HR_DEVICE i64 begun_month(i64 days) { return date_of(day_of_its_era(days)).day - 1; }
HR_DEVICE i64 begun_year(i64 days) { return date_of(day_of_its_era(days)).day_of_year - 1; }
HR_DEVICE i64 begun_quarter(i64 days)
{
    const Date date = date_of(day_of_its_era(days));
    const i32 quarter = (date.month - 1) / 3;
    const i32 before = quarter == 0 ? 0 : (quarter == 1 ? 90 : quarter == 2 ? 181 : 273) + i32(date.is_leap);
    return date.day_of_year - 1 - before;
}

// `*out` is the moment at which a span began that always has `span` ticks; the answer is whether
// 64 bits can say it.
HR_DEVICE bool span_began(i64 moment, i64 span, i64* out)
{
    const i64 since = floor_modulo<i64>(moment, span);
    *out = i64(u64(moment) - u64(since));
    return moment >= Limits<i64>::min + since;
}

} // namespace hr
