// Grouping by any keys of a few words: a hash table in global memory that numbers groups in
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
HR_DEVICE u32 group_of(u32* slots, u64* keys, u32* used, u64 capacity, u64 slot_mask, const u64 (&key)[WORDS])
{
    u64 hash = mix(key[WORDS - 1]);
#pragma unroll
    for (u32 word = WORDS - 1; word-- > 0;) hash = mix(key[word] ^ hash);
    u64 slot = hash & slot_mask;
    while (true) {
        const u32 held = *static_cast<volatile u32*>(slots + slot);
        if (held == SLOT_FREE) {
            if (atomicCAS(slots + slot, SLOT_FREE, SLOT_TAKEN) != SLOT_FREE) continue;
            u32 group = atomicAdd(used, 1u);
            if (group < capacity) {
#pragma unroll
                for (u32 word = 0; word < WORDS; ++word) keys[u64(group) * WORDS + word] = key[word];
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
        const volatile u64* other = keys + u64(held) * WORDS;
        bool is_same = true;
#pragma unroll
        for (u32 word = 0; word < WORDS; ++word) is_same = is_same && other[word] == key[word];
        if (is_same) return held;
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
