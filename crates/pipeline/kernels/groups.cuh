// Grouping by any keys of at most 128 bits: a hash table in global memory that numbers groups in
// the order in which they are first seen. It has room for as many groups as there can be, so it
// is never full unless recorded bounds were wrong.
//
// A slot is free, being taken, or holds a group number; the group's key lies in `keys`.
#pragma once
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

} // namespace hr
