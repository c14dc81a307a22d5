// Rows that survive the first steps wait in a queue of their warp until there is one for each
// lane; the later steps take one row a lane then. Few survivors would leave most lanes idle and
// make every tile wait for memory as often as there are steps.
#pragma once
#include "headrace/types.cuh"

// Entries of a warp's queue: less than one row a lane is left when a tile is added. An entry is
// the number of a row among those of the warp's tiles since the queue was last empty, which are 256
// at most: 16 bits, so that the queues leave the shared memory to the tables. A queue is emptied
// when the block goes on to another run of tiles, or another segment.
#define HR_QUEUE (HR_LANES * (HR_ROWS + 1u))

namespace hr {

// Adds the living rows of all lanes, which are of tile number `tile` of those; the answer is how
// many rows wait then. A round adds a row of each lane that has one: few have several.
HR_DEVICE u32 enqueue(u16* queue, u32 queued, u32 alive, u32 tile)
{
    __syncwarp();
    const u32 first = tile * HR_WARP_ROWS + lane() * HR_ROWS, below = (1u << lane()) - 1u;
    while (true) {
        const u32 lanes = __ballot_sync(~0u, alive != 0);
        if (lanes == 0) break;
        if (alive != 0) queue[queued + __popc(lanes & below)] = u16(first + u32(__ffs(alive)) - 1u);
        alive &= alive - 1u;
        queued += __popc(lanes);
    }
    __syncwarp();
    return queued;
}

// The row of an entry, `first_row` being the first row of the block's first tile of those.
HR_DEVICE u32 queued_row(u32 entry, u32 first_row)
{
    const u32 warp_row = threadIdx.x / HR_LANES * HR_WARP_ROWS;
    return first_row + entry / HR_WARP_ROWS * HR_TILE + warp_row + entry % HR_WARP_ROWS;
}

} // namespace hr
