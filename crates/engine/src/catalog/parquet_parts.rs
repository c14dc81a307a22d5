//! Row groups of Parquet files that are larger than what a reader may hold, read by parts.
//!
//! ```text
//! column a  │ page │ page │ page │ page │     The reader of Parquet files holds what it was given of a row group until the
//! column b  │    page    │    page     │     group is read. So it gets a large one by ranges of rows, each with the pages
//!           └── part ──┴──── part ────┘      that have rows of it, and the next when the one before it was read.
//! ```
//!
//! Where pages lie is told by their own headers: few writers leave an index of them. Pages of lists of the older kind do not
//! tell how many rows they have: their row groups are read whole.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use datafusion::parquet::column::page::PageReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::RowGroupMetaData;
use datafusion::parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};
use datafusion::parquet::file::reader::{ChunkReader, Length};
use datafusion::parquet::file::serialized_reader::SerializedPageReader;
use datafusion_datasource::morsel::{MorselPlan, MorselPlanner, Morselizer};
use datafusion_datasource_parquet::ParquetAccessPlan;
use headrace_io::SourceFile;

use super::parquet_input::{FileChunks, ParquetInput};
use crate::error::blocking;

/// A part takes at most one in so many of a memory limit, as long as it has two pages of each column.
const PART_SHARE: u64 = 16;
/// Not more than this for the sake of two pages.
const TWO_PAGES_SHARE: u64 = 4;

/// How much of a file is read at once.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The columns of the file that are read, as it counts those that hold values.
    pub columns: Vec<usize>,
    /// The memory limit.
    pub limit_bytes: u64,
}

impl Parts {
    /// Whether a row group takes more than a part may.
    fn is_large(&self, group: &RowGroupMetaData) -> bool {
        let bytes = self.columns.iter().map(|&column| group.column(column).byte_range().1);
        bytes.sum::<u64>() > self.limit_bytes / PART_SHARE
    }

    /// Whether a file has a row group that does.
    pub fn has_large(&self, input: &ParquetInput) -> bool {
        input.metadata.row_groups().iter().any(|group| self.is_large(group))
    }

    /// Bytes of a part.
    fn part_bytes(&self, columns: &[Pages]) -> u64 {
        let largest = |pages: &Pages| pages.places.iter().map(bytes_of).max().unwrap_or(0);
        let two_pages = 2 * columns.iter().map(largest).sum::<u64>();
        let least = self.limit_bytes / PART_SHARE;
        least.max(two_pages.min(self.limit_bytes / TWO_PAGES_SHARE))
    }
}

/// The pages of a column of a row group.
struct Pages {
    dictionary_bytes: u64,
    places: Vec<PageLocation>,
    /// Bytes of all pages before each, and of all.
    bytes_before: Vec<u64>,
}

fn bytes_of(place: &PageLocation) -> u64 {
    u64::from(place.compressed_page_size.unsigned_abs())
}

impl Pages {
    fn of(places: Vec<PageLocation>, start: u64) -> Self {
        let first = places.first().map_or(start, |place| place.offset.unsigned_abs());
        let mut bytes_before = vec![0];
        for place in &places {
            bytes_before.push(bytes_before[bytes_before.len() - 1] + bytes_of(place));
        }
        Self { dictionary_bytes: first.saturating_sub(start), places, bytes_before }
    }

    /// Bytes of the pages that have rows of a range.
    fn bytes(&self, rows: &Range<usize>) -> u64 {
        let begins_before = |row: usize| {
            self.places.partition_point(|place| (place.first_row_index as usize) < row)
        };
        let first = begins_before(rows.start + 1).saturating_sub(1);
        self.bytes_before[begins_before(rows.end)] - self.bytes_before[first]
    }
}

/// Ranges of rows, of about so many bytes each, that begin where a page does.
fn ranges(columns: &[Pages], rows: usize, bytes_max: u64) -> Vec<Range<usize>> {
    let dictionaries = columns.iter().map(|pages| pages.dictionary_bytes).sum::<u64>();
    // Each range reads the dictionaries again.
    let bytes_max = bytes_max.max(dictionaries);
    let places = columns.iter().flat_map(|pages| &pages.places);
    let cuts: BTreeSet<usize> = places.map(|place| place.first_row_index as usize).collect();
    let (mut ranges, mut open) = (Vec::new(), 0..0);
    for cut in cuts.into_iter().skip(1).chain([rows]) {
        let wider = open.start..cut;
        let bytes = columns.iter().map(|pages| pages.bytes(&wider)).sum::<u64>();
        if bytes > bytes_max && !open.is_empty() {
            ranges.push(open.clone());
            open = open.end..cut;
        } else {
            open = wider;
        }
    }
    ranges.push(open);
    ranges
}

/// Bytes of a file, and where they were asked for last: there lies the page whose header was read.
struct Headers {
    file: FileChunks,
    last: AtomicU64,
}

impl Length for Headers {
    fn len(&self) -> u64 {
        self.file.len()
    }
}

impl ChunkReader for Headers {
    type T = <FileChunks as ChunkReader>::T;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        self.last.store(start, Ordering::Relaxed);
        self.file.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        self.file.get_bytes(start, length)
    }
}

/// The pages of a column; `None` where they do not tell their rows.
fn pages(
    file: &Arc<SourceFile>,
    group: &RowGroupMetaData,
    column: usize,
) -> ParquetResult<Option<Pages>> {
    let chunk = group.column(column);
    let (start, bytes) = chunk.byte_range();
    let is_flat = chunk.column_descr().max_rep_level() == 0;
    let headers =
        Arc::new(Headers { file: FileChunks(Arc::clone(file)), last: AtomicU64::new(start) });
    let rows = usize::try_from(group.num_rows()).unwrap_or(0);
    let mut reader = SerializedPageReader::new(Arc::clone(&headers), chunk, rows, None)?;
    let (mut begins, mut first_row) = (Vec::new(), 0);
    while let Some(page) = reader.peek_next_page()? {
        let values = page.num_levels.filter(|_| is_flat);
        match page.num_rows.or(values) {
            _ if page.is_dict => {}
            Some(rows) => {
                begins.push((headers.last.load(Ordering::Relaxed), first_row));
                first_row += rows;
            }
            None => return Ok(None),
        }
        reader.skip_next_page()?;
    }
    if first_row != rows {
        let name = chunk.column_path();
        return Err(ParquetError::General(format!(
            "the pages of column {name} have {first_row} rows, and their row group {rows}"
        )));
    }
    let ends = begins.iter().skip(1).map(|(begin, _)| *begin).chain([start + bytes]);
    let place = |(&(begin, first_row), end): (&(u64, usize), u64)| {
        Some(PageLocation {
            offset: i64::try_from(begin).ok()?,
            compressed_page_size: i32::try_from(end.checked_sub(begin)?).ok()?,
            first_row_index: first_row as i64,
        })
    };
    let places = begins.iter().zip(ends).map(place).collect::<Option<Vec<_>>>();
    Ok(places.map(|places| Pages::of(places, start)))
}

/// A file whose reader is told which part of it to read.
fn part(file: &PartitionedFile, group_count: usize, groups: Range<usize>) -> PartitionedFile {
    let mut plan = ParquetAccessPlan::new_none(group_count);
    groups.for_each(|group| plan.scan(group));
    file.clone().with_extension(plan)
}

/// The parts of a large row group; all of it where its pages do not tell their rows.
fn parts_of_group(
    file: &PartitionedFile,
    input: &ParquetInput,
    parts: &Parts,
    number: usize,
) -> ParquetResult<VecDeque<PartitionedFile>> {
    let metadata = &input.metadata;
    let (group, groups) = (metadata.row_group(number), metadata.num_row_groups());
    let read = parts.columns.iter().map(|&column| pages(&input.source, group, column));
    let Some(read) = read.collect::<ParquetResult<Option<Vec<Pages>>>>()? else {
        return Ok([part(file, groups, number..number + 1)].into());
    };
    let rows = usize::try_from(group.num_rows()).unwrap_or(0);
    let ranges = ranges(&read, rows, parts.part_bytes(&read));
    // The index has an entry for every column, and is asked for those alone that are read.
    let unread = |column| PageLocation {
        offset: group.column(column).byte_range().0 as i64,
        compressed_page_size: 0,
        first_row_index: 0,
    };
    let index = |places| OffsetIndexMetaData {
        page_locations: places,
        unencoded_byte_array_data_bytes: None,
    };
    let mut of_group: Vec<_> =
        (0..group.num_columns()).map(|column| index(vec![unread(column)])).collect();
    for (&column, pages) in parts.columns.iter().zip(read) {
        of_group[column] = index(pages.places);
    }
    let mut of_groups = vec![Vec::new(); groups];
    of_groups[number] = of_group;
    let builder = metadata.as_ref().clone().into_builder();
    let with_index = Arc::new(builder.set_offset_index(Some(of_groups)).build());
    let mut input = input.clone();
    input.metadata = with_index;
    let of_rows = |range: Range<usize>| {
        let selection = RowSelection::from(vec![
            RowSelector::skip(range.start),
            RowSelector::select(range.len()),
            RowSelector::skip(rows - range.end),
        ]);
        let mut plan = ParquetAccessPlan::new_none(groups);
        plan.scan(number);
        plan.scan_selection(number, selection);
        file.clone().with_extension(input.clone()).with_extension(plan)
    };
    Ok(ranges.into_iter().map(of_rows).collect())
}

/// Plans a file part by part.
pub struct ByParts {
    morselizer: Arc<dyn Morselizer>,
    file: PartitionedFile,
    input: ParquetInput,
    parts: Parts,
    /// The first row group that no part was made of yet.
    next_group: usize,
    made: VecDeque<PartitionedFile>,
    /// Of the part that is read.
    planners: VecDeque<Box<dyn MorselPlanner>>,
}

impl fmt::Debug for ByParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ByParts({}, from row group {})", self.file.path(), self.next_group)
    }
}

impl ByParts {
    /// Of a file that the reader was told of.
    pub fn new(
        morselizer: Arc<dyn Morselizer>,
        (file, input): (PartitionedFile, ParquetInput),
        parts: Parts,
    ) -> Self {
        let (made, planners) = (VecDeque::new(), VecDeque::new());
        Self { morselizer, file, input, parts, next_group: 0, made, planners }
    }

    /// The next row groups that are read whole.
    fn small_groups(&self) -> Range<usize> {
        let groups = &self.input.metadata.row_groups()[self.next_group..];
        let small = groups.iter().take_while(|group| !self.parts.is_large(group)).count();
        self.next_group..self.next_group + small
    }

    /// Whether another partition of the scan reads a row group.
    fn is_elsewhere(&self, group: usize) -> bool {
        let column = self.input.metadata.row_group(group).column(0);
        let begin = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        self.file.range.as_ref().is_some_and(|range| !range.contains(begin))
    }

    /// Makes parts of the next row group, whose page headers are read for that.
    async fn with_large_group(mut self) -> Result<Box<dyn MorselPlanner>> {
        let number = self.next_group;
        let (file, input, parts) = (self.file.clone(), self.input.clone(), self.parts.clone());
        let made = blocking(move || Ok(parts_of_group(&file, &input, &parts, number)?));
        self.made = made.await?;
        self.next_group += 1;
        Ok(Box::new(self))
    }

    /// What the planner of a part said, and then what is left.
    fn and_then(mut self, mut plan: MorselPlan) -> MorselPlan {
        let mut planned = MorselPlan::new().with_morsels(plan.take_morsels());
        let mut ready: VecDeque<_> = plan.take_ready_planners().into();
        ready.append(&mut self.planners);
        self.planners = ready;
        match plan.take_pending_planner() {
            None => planned.with_planners(vec![Box::new(self)]),
            Some(pending) => {
                planned.set_pending_planner(async move {
                    self.planners.push_back(pending.await?);
                    Ok(Box::new(self) as Box<dyn MorselPlanner>)
                });
                planned
            }
        }
    }
}

impl MorselPlanner for ByParts {
    fn plan(mut self: Box<Self>) -> Result<Option<MorselPlan>> {
        loop {
            if let Some(planner) = self.planners.pop_front() {
                if let Some(plan) = planner.plan()? {
                    return Ok(Some(self.and_then(plan)));
                }
                continue;
            }
            if let Some(part) = self.made.pop_front() {
                self.planners.push_back(self.morselizer.plan_file(part)?);
                continue;
            }
            let groups = self.input.metadata.num_row_groups();
            let small = self.small_groups();
            if !small.is_empty() {
                self.next_group = small.end;
                self.made.push_back(part(&self.file, groups, small));
            } else if self.next_group == groups {
                return Ok(None);
            } else if self.is_elsewhere(self.next_group) {
                self.next_group += 1;
            } else {
                return Ok(Some(MorselPlan::new().with_pending_planner(self.with_large_group())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of a column: their rows and bytes.
    fn column(dictionary_bytes: u64, pages: &[(i64, i32)]) -> Pages {
        let (mut row, mut offset) = (0, 4 + dictionary_bytes as i64);
        let mut place = |&(rows, bytes): &(i64, i32)| {
            let place = PageLocation { offset, compressed_page_size: bytes, first_row_index: row };
            row += rows;
            offset += i64::from(bytes);
            place
        };
        let places = pages.iter().map(&mut place).collect();
        Pages::of(places, 4)
    }

    #[test]
    fn a_range_has_the_pages_that_have_rows_of_it() {
        let pages = column(7, &[(10, 100), (10, 200), (5, 50)]);
        assert_eq!(pages.dictionary_bytes, 7);
        let bytes = |rows| pages.bytes(&rows);
        assert_eq!([bytes(0..1), bytes(0..10), bytes(9..11), bytes(10..20)], [100, 100, 300, 200]);
        assert_eq!([bytes(0..25), bytes(20..25), bytes(19..21)], [350, 50, 250]);
    }

    #[test]
    fn parts_are_as_large_as_they_may_and_hold_every_row_once() {
        let columns = [column(0, &[(10, 100); 10]), column(9, &[(25, 90); 4])];
        let all: Vec<_> = [1, 200, 400, 1_000_000]
            .into_iter()
            .map(|bytes_max| ranges(&columns, 100, bytes_max))
            .collect();
        for ranges in &all {
            let mut next = 0;
            for range in ranges {
                assert_eq!((range.start, range.is_empty()), (next, false));
                next = range.end;
            }
            assert_eq!(next, 100);
        }
        // Where any column has a page that begins.
        assert_eq!(all[0].len(), 12);
        assert_eq!(all[1][..2], [0..10, 10..20]);
        assert_eq!(all[2][..2], [0..25, 25..50]);
        assert_eq!(all[3].as_slice(), std::slice::from_ref(&(0..100)));
    }
}
