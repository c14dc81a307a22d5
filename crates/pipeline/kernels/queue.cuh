// Rows that survive the first steps wait in a queue of their warp until there is one for each
// lane; the later steps take one row a lane then. Few survivors would leave most lanes idle and
// make every tile wait for memory as often as there are steps.
#pragma once
#include "headrace/types.cuh"

// Entries of a warp's queue: less than one row a lane is left when a tile is added.
#define HR_QUEUE (HR_LANES * (HR_ROWS + 1u))

namespace hr {

HR_DEVICE u32 lane() { return threadIdx.x & (HR_LANES - 1u); }

// Adds the living rows of all lanes; the answer is how many rows wait then.
HR_DEVICE u32 enqueue(u32* queue, u32 queued, u32 alive, u32 row)
{
    __syncwarp();
    const u32 count = __popc(alive);
    const u32 below = (1u << lane()) - 1u;
    u32 total = 0, at = queued;
#pragma unroll
    for (u32 bit = 0; (1u << bit) <= HR_ROWS; ++bit) {
        const u32 lanes = __ballot_sync(~0u, count >> bit & 1u);
        total += __popc(lanes) << bit;
        at += __popc(lanes & below) << bit;
    }
    while (alive != 0) {
        queue[at++] = row + u32(__ffs(alive)) - 1u;
        alive &= alive - 1u;
    }
    __syncwarp();
    return queued + total;
}

} // namespace hr
