// Grouping by any keys of at most 128 bits: a hash table in global memory that numbers groups in
// the order in which they are first seen. It has room for as many groups as there can be, or warps
// leave before it is full (`groups.rs` says how): it never is, unless recorded bounds were wrong.
//
// A slot is free, being taken, or holds a group number; the group's key lies in `keys`.
#pragma once
#include "headrace/aggregate.cuh"
#include "headrace/probe.cuh"

namespace hr {

constexpr u32 SLOT_FREE = 0xffffffffu, SLOT_TAKEN = 0xfffffffeu, NO_GROUP = 0xfffffffdu;

template <u32 WORDS>
HR_DEVICE u32 group_of(u32* slots, u64* keys, u32* used, u64 capacity, u64 slot_mask, u64 low, u64 high)
{
    u64 slot = mix(WORDS == 1 ? low : low ^ mix(high)) & slot_mask;
    while (true) {
        const u32 held = *static_cast<volatile u32*>(slots + slot);
        if (held == SLOT_FREE) {
            if (atomicCAS(slots + slot, SLOT_FREE, SLOT_TAKEN) != SLOT_FREE) continue;
            u32 group = atomicAdd(used, 1u);
            if (group < capacity) {
                keys[u64(group) * WORDS] = low;
                if (WORDS == 2) keys[u64(group) * WORDS + 1] = high;
            } else {
                group = NO_GROUP;
            }
            // Whoever sees the number sees the key.
            __threadfence();
            *static_cast<volatile u32*>(slots + slot) = group;
            return group;
        }
        if (held == SLOT_TAKEN) continue;
        if (held == NO_GROUP) return held;
        __threadfence();
        const volatile u64* key = keys + u64(held) * WORDS;
        if (key[0] == low && (WORDS == 1 || key[1] == high)) return held;
        slot = (slot + 1) & slot_mask;
    }
}

// The warp's number in the grid.
HR_DEVICE u32 warp_number() { return (blockIdx.x * BLOCK_THREADS + threadIdx.x) / HR_LANES; }

// The run of tiles at which the warp begins: its first, or where it left.
HR_DEVICE u32 begin_run(const u32* left, u32 first) { return left == nullptr ? first : left[warp_number()]; }

// Whether the warp may begin another run: the same for all of its lanes, which see what each of
// them has added. A table without a limit is not asked.
HR_DEVICE bool has_room(const u32* used, u32 limit)
{
    if (limit == ~0u) return true;
    __syncwarp();
    const u32 held = *static_cast<const volatile u32*>(used);
    return __shfl_sync(~0u, held, 0) <= limit;
}

// Writes down the run before which the warp leaves: beyond the last if it is done.
HR_DEVICE void leave_run(u32* leaves, u32 run)
{
    if (leaves != nullptr && first_lane()) leaves[warp_number()] = run;
}

} // namespace hr
