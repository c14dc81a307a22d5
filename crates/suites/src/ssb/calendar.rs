//! The seven years of the date table, 1992-01-01 to 1998-12-31, by day number.

/// Days in the calendar: seven years, of which 1992 and 1996 are leap years.
pub(crate) const DAYS: u32 = 2557;

const FIRST_YEAR: u32 = 1992;
/// 1992-01-01 was a Wednesday; Sunday is 0.
const FIRST_WEEKDAY: u32 = 3;

const MONTH_DAYS: [u32; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// Month and day of dbgen's ten holidays, the same every year.
const HOLIDAYS: [(u32, u32); 10] =
    [(1, 1), (2, 20), (4, 20), (5, 20), (7, 20), (8, 20), (9, 20), (10, 20), (11, 20), (12, 24)];

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Day {
    pub(crate) year: u32,
    /// 1..=12
    pub(crate) month: u32,
    /// 1..=31
    pub(crate) day: u32,
    /// 1..=366
    pub(crate) day_of_year: u32,
    /// 0..=6 from Sunday
    pub(crate) weekday: u32,
}

const fn is_leap(year: u32) -> bool {
    // Enough for 1992..=1998.
    year.is_multiple_of(4)
}

const fn month_days(year: u32, month: u32) -> u32 {
    MONTH_DAYS[month as usize - 1] + (month == 2 && is_leap(year)) as u32
}

impl Day {
    /// The day `number` days after 1992-01-01; the number must be below [`DAYS`].
    pub(crate) fn new(number: u32) -> Self {
        assert!(number < DAYS, "day {number} lies behind the calendar");
        let weekday = (FIRST_WEEKDAY + number) % 7;
        let mut year = FIRST_YEAR;
        let mut rest = number;
        while rest >= 365 + u32::from(is_leap(year)) {
            rest -= 365 + u32::from(is_leap(year));
            year += 1;
        }
        let day_of_year = rest + 1;
        let mut month = 1;
        while rest >= month_days(year, month) {
            rest -= month_days(year, month);
            month += 1;
        }
        Self { year, month, day: rest + 1, day_of_year, weekday }
    }

    /// The decimal number yyyymmdd.
    pub(crate) const fn key(self) -> i32 {
        (self.year * 10_000 + self.month * 100 + self.day) as i32
    }

    /// dbgen's week: day of the year / 7 + 1, so that the first week of a year has six days.
    pub(crate) const fn week(self) -> u32 {
        self.day_of_year / 7 + 1
    }

    pub(crate) const fn is_last_in_month(self) -> bool {
        self.day == month_days(self.year, self.month)
    }

    pub(crate) fn is_holiday(self) -> bool {
        HOLIDAYS.contains(&(self.month, self.day))
    }

    /// Position in [`super::vocabulary::SEASONS`].
    pub(crate) const fn season(self) -> u32 {
        match self.month {
            1..=3 => 0,
            4 => 1,
            5..=8 => 2,
            9..=10 => 3,
            _ => 4,
        }
    }
}

/// yyyymmdd of every day of the calendar, by day number.
pub(crate) fn keys() -> Vec<i32> {
    (0..DAYS).map(|number| Day::new(number).key()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_leap_days() {
        assert_eq!(Day::new(0).key(), 19_920_101);
        assert_eq!(Day::new(59).key(), 19_920_229);
        assert_eq!(Day::new(DAYS - 1).key(), 19_981_231);
        assert_eq!(Day::new(DAYS - 1).weekday, 4, "1998-12-31 was a Thursday");
        assert_eq!(Day::new(DAYS - 1).day_of_year, 365);
        assert_eq!(Day::new(365).key(), 19_921_231);
        // The last order date of dbgen.
        assert_eq!(Day::new(2405).key(), 19_980_802);
    }

    #[test]
    fn days_follow_each_other() {
        for number in 1..DAYS {
            let (before, day) = (Day::new(number - 1), Day::new(number));
            assert!(before.key() < day.key());
            assert_eq!(before.is_last_in_month(), day.day == 1);
            assert_eq!((before.weekday + 1) % 7, day.weekday);
        }
    }
}
