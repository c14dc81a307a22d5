//! Table date: the 2,557 days of 1992 to 1998.

use std::{ops::Range, sync::Arc};

use arrow_array::{ArrayRef, StringArray};
use arrow_schema::{ArrowError, SchemaRef};

use super::{RowGenerator, Table, shared_schema};
use crate::{
    columns::{TextBuilder, code8, code8_field, int32, int32_field, text_field},
    ssb::{
        calendar::{DAYS, Day},
        vocabulary::{self, MONTHS, SEASONS, WEEKDAYS},
    },
};

const FIRST_YEAR: u32 = 1992;
const YEARS: u32 = 7;
const SATURDAY: u32 = 6;
const SUNDAY: u32 = 0;

pub(super) struct Dates {
    schema: SchemaRef,
    weekdays: ArrayRef,
    months: ArrayRef,
    year_months: ArrayRef,
    seasons: ArrayRef,
}

impl Dates {
    pub(super) fn new() -> Self {
        Self {
            schema: shared_schema(vec![
                int32_field("d_datekey"),
                text_field("d_date"),
                code8_field("d_dayofweek"),
                code8_field("d_month"),
                int32_field("d_year"),
                int32_field("d_yearmonthnum"),
                code8_field("d_yearmonth"),
                int32_field("d_daynuminweek"),
                int32_field("d_daynuminmonth"),
                int32_field("d_daynuminyear"),
                int32_field("d_monthnuminyear"),
                int32_field("d_weeknuminyear"),
                code8_field("d_sellingseason"),
                int32_field("d_lastdayinweekfl"),
                int32_field("d_lastdayinmonthfl"),
                int32_field("d_holidayfl"),
                int32_field("d_weekdayfl"),
            ]),
            weekdays: vocabulary::words(&WEEKDAYS),
            months: vocabulary::words(&MONTHS),
            year_months: year_months(),
            seasons: vocabulary::words(&SEASONS),
        }
    }
}

/// `Jan1992` to `Dec1998`.
fn year_months() -> ArrayRef {
    let names: Vec<String> = (FIRST_YEAR..FIRST_YEAR + YEARS)
        .flat_map(|year| MONTHS.iter().map(move |month| format!("{month:.3}{year}")))
        .collect();
    Arc::new(StringArray::from(names))
}

/// `January 1, 1992` and so on.
fn long_dates(days: &[Day]) -> Result<ArrayRef, ArrowError> {
    let mut text = TextBuilder::with_capacity(days.len(), 18);
    for day in days {
        text.push(MONTHS[day.month as usize - 1].as_bytes());
        text.push(b" ");
        text.push_number(day.day, 1);
        text.push(b", ");
        text.push_number(day.year, 4);
        text.end_value()?;
    }
    text.finish()
}

impl RowGenerator for Dates {
    fn table(&self) -> Table {
        Table::Date
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self) -> u64 {
        DAYS.into()
    }

    fn columns(&self, rows: Range<u64>) -> Result<Vec<ArrayRef>, ArrowError> {
        let days: Vec<Day> = rows.map(|row| Day::new(row as u32)).collect();
        let number = |of: fn(&Day) -> u32| int32(days.iter().map(|day| of(day) as i32).collect());
        let code = |of: fn(&Day) -> u32, words: &ArrayRef| {
            code8(days.iter().map(|day| of(day) as i8).collect::<Vec<_>>(), words)
        };
        Ok(vec![
            int32(days.iter().map(|day| day.key()).collect()),
            long_dates(&days)?,
            code(|day| day.weekday, &self.weekdays)?,
            code(|day| day.month - 1, &self.months)?,
            number(|day| day.year),
            number(|day| day.year * 100 + day.month),
            code(|day| (day.year - FIRST_YEAR) * 12 + day.month - 1, &self.year_months)?,
            number(|day| day.weekday + 1),
            number(|day| day.day),
            number(|day| day.day_of_year),
            number(|day| day.month),
            number(|day| day.week()),
            code(|day| day.season(), &self.seasons)?,
            number(|day| u32::from(day.weekday == SATURDAY)),
            number(|day| u32::from(day.is_last_in_month())),
            number(|day| u32::from(day.is_holiday())),
            number(|day| u32::from(!matches!(day.weekday, SATURDAY | SUNDAY))),
        ])
    }
}
