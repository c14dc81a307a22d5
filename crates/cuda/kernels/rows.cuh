// Output of surviving rows, in no order.
#pragma once
#include "headrace/types.cuh"

namespace hr {

// Where the calling thread writes its `count` (0 to 8) rows: one atomic for all threads of
// the warp that arrive together.
HR_DEVICE u64 reserve_rows(u64* used, u32 count)
{
    const u32 mask = __activemask();
    const u32 below = (1u << (threadIdx.x & 31u)) - 1u;
    const u32 ones = __ballot_sync(mask, count & 1u);
    const u32 twos = __ballot_sync(mask, count & 2u);
    const u32 fours = __ballot_sync(mask, count & 4u);
    const u32 eights = __ballot_sync(mask, count & 8u);
    const u32 total = __popc(ones) + 2 * __popc(twos) + 4 * __popc(fours) + 8 * __popc(eights);
    const u32 before = __popc(ones & below) + 2 * __popc(twos & below) + 4 * __popc(fours & below)
        + 8 * __popc(eights & below);
    const u32 leader = __ffs(mask) - 1;
    u64 start = 0;
    if ((threadIdx.x & 31u) == leader) start = atomicAdd(used, u64(total));
    start = __shfl_sync(mask, start, leader);
    return start + before;
}

} // namespace hr
