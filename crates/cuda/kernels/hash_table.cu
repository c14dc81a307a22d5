// Fills the hash table of a build: each key, with the first row that has it. `find` in `probe.cuh` uses the same hash.
#ifndef BLOCK_THREADS
#define BLOCK_THREADS 256
#endif
#define BLOCKS_PER_SM 1
#include "headrace/probe.cuh"

struct Params {
    // All EMPTY at first. The first launch puts entries here, the second replaces them by rows.
    u32* slots;
    // One or two words a slot.
    u64* slot_keys;
    u64 slot_mask;
    // Keys by entry, one or two words each; a key of one word is masked. Null: the key of an entry is `base + entry`.
    const u64* keys;
    u64 base;
    u64 key_mask;
    u64 words;
    // Rows by entry; EMPTY: the entry is skipped. Null: the row of an entry is its number.
    const u32* rows;
    u64 entries;
    // 0 in the first launch, 1 in the second.
    u64 has_entered;
};

struct Key {
    u64 low, high;
};

HR_DEVICE Key key_of(const Params& p, u64 entry)
{
    if (!p.keys) return {(p.base + entry) & p.key_mask, 0};
    if (p.words == 1) return {p.keys[entry] & p.key_mask, 0};
    return {p.keys[2 * entry], p.keys[2 * entry + 1]};
}

HR_DEVICE void enter(const Params& p, u64 entry)
{
    if (p.rows && p.rows[entry] == hr::EMPTY) return;
    const Key key = key_of(p, entry);
    const u64 hash = p.words == 1 ? hr::mix(key.low) : hr::mix(key.low ^ hr::mix(key.high));
    u64 slot = u32(hash) & p.slot_mask;
    while (true) {
        const u32 other = atomicCAS(p.slots + slot, hr::EMPTY, u32(entry));
        if (other == hr::EMPTY) return;
        const Key taken = key_of(p, other);
        if (taken.low == key.low && taken.high == key.high) {
            // Whichever of a key's entries lies here, it has that key.
            if (u32(entry) < other) atomicMin(p.slots + slot, u32(entry));
            return;
        }
        slot = (slot + 1) & p.slot_mask;
    }
}

HR_DEVICE void settle(const Params& p, u64 slot)
{
    const u32 entry = p.slots[slot];
    if (entry == hr::EMPTY) return;
    const Key key = key_of(p, entry);
    p.slot_keys[slot * p.words] = key.low;
    if (p.words == 2) p.slot_keys[2 * slot + 1] = key.high;
    if (p.rows) p.slots[slot] = p.rows[entry];
}

HR_KERNEL headrace_hash_table(HR_CONSTANT Params p)
{
    const u64 step = u64(gridDim.x) * BLOCK_THREADS, first = u64(blockIdx.x) * BLOCK_THREADS + threadIdx.x;
    if (!p.has_entered)
        for (u64 entry = first; entry < p.entries; entry += step) enter(p, entry);
    else
        for (u64 slot = first; slot <= p.slot_mask; slot += step) settle(p, slot);
}
