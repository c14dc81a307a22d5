//! Hashed groups on their way from a device to the host, region by region: through pinned memory,
//! then portion by portion on several threads into output rows or partial states.

use std::sync::Arc;

use headrace_gpu::Stream;

use crate::cuda::device::CudaDevice;
use crate::cuda::device_state::DeviceState;
use crate::cuda::host_memory::PinnedLease;
use crate::cuda::rows::RowOutput;
use crate::error::ExecError;

/// Pinned memory of a region at most.
const REGION_BYTES_MAX: u64 = 64 << 20;

/// Hands over the groups of a state whose kernels `stream` waits for or has done. `is_last`: this is
/// the only device and there is nothing more to come, so that groups that nobody else has seen are
/// finished at once.
///
/// # Errors
/// Totals that overflow, memory, the spill store, the device, [`ExecError::Cancelled`].
pub(super) fn hand_over(
    device: &Arc<CudaDevice>,
    stream: &Stream,
    state: &DeviceState,
    output: &RowOutput<'_>,
    is_last: bool,
) -> Result<(), ExecError> {
    let (Some(groups), Some(states)) = (&state.groups, output.groups()) else {
        return Err(ExecError::Internal("groups of another sink".into()));
    };
    let used = u64::from(state.take_groups_used(stream)?).min(groups.room.capacity) as usize;
    if used == 0 {
        return Ok(());
    }
    let group_bytes = state.group_bytes(groups);
    let region_bytes = REGION_BYTES_MAX.min(states.region_bytes_max()) as usize;
    let region = (region_bytes / group_bytes).clamp(1, used);
    let _decoded = states.reserve((region * group_bytes) as u64)?;
    // Of few sizes, so that the next query finds it.
    let mut staging = PinnedLease::take(device, (region * group_bytes).next_power_of_two())?;
    for start in (0..used).step_by(region) {
        let range = start..used.min(start + region);
        let count = range.len();
        // SAFETY: the lease goes back, and is read, only after the wait below; the state outlives it.
        let queued = unsafe { state.queue_groups(stream, groups, range, staging.as_mut_slice()) };
        stream.synchronize()?;
        queued?;
        let arrived = (staging.as_slice(), count);
        states.in_portions(count, |portion| {
            output.take_groups(&state.arrived(groups, arrived, portion), is_last)
        })?;
        if output.is_enough() {
            return Ok(());
        }
    }
    Ok(())
}
