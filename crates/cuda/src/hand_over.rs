//! Hashed groups on their way from a device to the host, region by region: through pinned memory,
//! then portion by portion on several threads into output rows or partial states.

use std::ops::Range;
use std::sync::Arc;

use headrace_gpu::Stream;
use headrace_pipeline::ExecError;

use crate::device::CudaDevice;
use crate::device_state::{DeviceState, GroupBuffers};
use crate::error::CudaError;
use crate::gather::Gathering;
use crate::groups::DeviceGroups;
use crate::pinned::PinnedLease;
use crate::rows::RowOutput;
use crate::text_values::{TEXT_VALUE_BYTES, cut, rows_together, text_lengths};

/// Pinned memory of a region at most.
const REGION_BYTES_MAX: u64 = 64 << 20;

/// Hands over the groups of a state whose kernels `stream` waits for or has done. `is_last`: this is
/// the only device and there is nothing more to come, so that groups that nobody else has seen are
/// finished at once. How many groups there were.
///
/// # Errors
/// Totals that overflow, memory, a temporary file, the device, [`ExecError::Cancelled`].
pub(crate) fn hand_over(
    device: &Arc<CudaDevice>,
    stream: &Stream,
    state: &DeviceState,
    output: &RowOutput<'_>,
    is_last: bool,
) -> Result<u64, CudaError> {
    let (Some(groups), Some(states)) = (&state.groups, output.groups()) else {
        return Err(ExecError::Internal("groups of another sink".into()).into());
    };
    let used = groups.room.groups(state.take_groups_used(stream)?);
    if used == 0 {
        return Ok(0);
    }
    let group_bytes = state.group_bytes(groups);
    let region_bytes = REGION_BYTES_MAX.min(states.region_bytes_max()) as usize;
    let region = (region_bytes / group_bytes).clamp(1, used);
    let _decoded =
        states.reserve((region * group_bytes) as u64, "groups on their way from a GPU")?;
    // Of few sizes, so that the next query finds it.
    let mut staging = PinnedLease::take(device, (region * group_bytes).next_power_of_two())?;
    let mut texts = GroupTexts::new(device, stream, state, groups)?;
    for start in (0..used).step_by(region) {
        let range = start..used.min(start + region);
        let count = range.len();
        // SAFETY: the lease goes back, and is read, only after the wait below; the state outlives it.
        let queued = unsafe { state.queue_groups(stream, groups, range, staging.as_mut_slice()) };
        stream.synchronize()?;
        queued?;
        let arrived = (staging.as_slice(), count);
        texts.begin(state, groups, arrived)?;
        let mut first = 0;
        while first < count {
            let rows = texts.bring(stream, first..count)?;
            let lines = texts.lines(rows)?;
            states.in_portions(rows, |portion| {
                let texts = lines.iter().map(|texts| &texts[portion.clone()]).collect();
                let portion = first + portion.start..first + portion.end;
                let (keys, entries) = state.arrived(groups, arrived, portion);
                let portion = DeviceGroups::new(&groups.layout, keys, entries, texts)?;
                output.take_groups(&portion, is_last)
            })?;
            if output.is_enough() {
                return Ok(used as u64);
            }
            first += rows;
        }
    }
    Ok(used as u64)
}

/// The texts that groups keep on the device, on their way.
struct GroupTexts {
    /// `None`: they keep none.
    gathering: Option<Gathering>,
    /// Where they lie there, and their bytes.
    kept: (u64, u64),
    /// Where each lies, of the groups of a region.
    values: Vec<Vec<u8>>,
    /// The length of each of those that came, by column.
    lengths: Vec<Vec<usize>>,
}

impl GroupTexts {
    fn new(
        device: &Arc<CudaDevice>,
        stream: &Stream,
        state: &DeviceState,
        groups: &GroupBuffers,
    ) -> Result<Self, CudaError> {
        let kept = state.take_group_texts(stream, groups)?;
        Ok(Self {
            // Keys may all be short.
            gathering: match kept {
                Some((_, 1..)) => Some(Gathering::new(device)?),
                _ => None,
            },
            kept: kept.unwrap_or_default(),
            values: Vec::new(),
            lengths: Vec::new(),
        })
    }

    /// A region has arrived.
    fn begin(
        &mut self,
        state: &DeviceState,
        groups: &GroupBuffers,
        arrived: (&[u8], usize),
    ) -> Result<(), CudaError> {
        if self.gathering.is_some() {
            let (keys, entries) = state.arrived(groups, arrived, 0..arrived.1);
            self.values = groups.layout.kept_texts(keys, entries, self.kept)?;
        }
        Ok(())
    }

    /// Brings the texts of the first of these groups of the region; of how many.
    fn bring(&mut self, stream: &Stream, range: Range<usize>) -> Result<usize, CudaError> {
        let Some(gathering) = &mut self.gathering else { return Ok(range.len()) };
        let at = range.start * TEXT_VALUE_BYTES;
        let values: Vec<&[u8]> = self.values.iter().map(|values| &values[at..]).collect();
        let rows = rows_together(&values, range.len());
        let texts: Vec<_> = values.iter().map(|values| (None, *values)).collect();
        // SAFETY: the state, which has the texts, outlives the wait below.
        let queued = unsafe { gathering.queue(stream, rows, &texts) };
        stream.synchronize()?;
        queued?;
        let lengths = |values: &&[u8]| text_lengths(values).take(rows).collect();
        self.lengths = values.iter().map(lengths).collect();
        Ok(rows)
    }

    /// The texts that came, of so many groups, by column.
    fn lines(&self, rows: usize) -> Result<Vec<Vec<&[u8]>>, ExecError> {
        let Some(gathering) = &self.gathering else { return Ok(Vec::new()) };
        let broken = || ExecError::Internal("texts of groups that break off".into());
        let column = |(column, lengths): (usize, &Vec<usize>)| {
            let texts = cut(gathering.arrived(column), lengths.iter().copied().take(rows));
            texts.collect::<Option<Vec<_>>>().ok_or_else(broken)
        };
        self.lengths.iter().enumerate().map(column).collect()
    }
}
