// Enters all groups of a table in new, larger slots. `group_of` in `groups.cuh` looks for a group by the same hash.
#ifndef BLOCK_THREADS
#define BLOCK_THREADS 256
#endif
#define BLOCKS_PER_SM 1
#include "headrace/groups.cuh"

struct Params {
    // All free.
    u32* slots;
    u64 slot_mask;
    const u64* keys;
    u64 groups;
    // Words of a key, and how many of the keys are texts; these come first.
    alignas(8) u32 words;
    alignas(8) u32 texts;
};

HR_KERNEL headrace_rehash(HR_CONSTANT Params p)
{
    const u64 step = u64(gridDim.x) * BLOCK_THREADS;
    for (u64 group = u64(blockIdx.x) * BLOCK_THREADS + threadIdx.x; group < p.groups; group += step) {
        const u64* key = p.keys + group * p.words;
        u64 slot = hr::key_hash(key, p.words, p.texts) & p.slot_mask;
        while (atomicCAS(p.slots + slot, hr::SLOT_FREE, u32(group)) != hr::SLOT_FREE) slot = (slot + 1) & p.slot_mask;
    }
}
