// Lookups in hash builds: open addressing, linear steps, a power of two of slots of which
// at most half are taken. A slot holds a build row, or EMPTY; narrow keys lie beside it.
#pragma once
#include "headrace/load.cuh"

namespace hr {

constexpr u32 EMPTY = 0xffffffffu;

// The finaliser of MurmurHash3 (public domain, Austin Appleby). `hash_table.cu` fills the
// table with the same function.
HR_DEVICE u64 mix(u64 key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdull;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53ull;
    key ^= key >> 33;
    return key;
}

// Build row of a key of at most 64 bits, or EMPTY.
HR_DEVICE u32 find(const u32* rows, const u64* keys, u32 slot_mask, u64 key)
{
    u32 slot = u32(mix(key)) & slot_mask;
    while (true) {
        const u32 row = rows[slot];
        if (row == EMPTY || keys[slot] == key) return row;
        slot = (slot + 1) & slot_mask;
    }
}
// As above for keys of at most 128 bits: two words a slot.
HR_DEVICE u32 find(const u32* rows, const u64* keys, u32 slot_mask, u64 low, u64 high)
{
    u32 slot = u32(mix(low ^ mix(high))) & slot_mask;
    while (true) {
        const u32 row = rows[slot];
        if (row == EMPTY || (keys[2 * u64(slot)] == low && keys[2 * u64(slot) + 1] == high)) return row;
        slot = (slot + 1) & slot_mask;
    }
}

// The smaller of two numbers. Direct tables have an absent entry behind their last one, which
// stands for every key outside.
HR_DEVICE u32 least(u32 a, u32 b) { return a < b ? a : b; }
HR_DEVICE u64 least(u64 a, u64 b) { return a < b ? a : b; }

// Bit `index` of a bitmap as the lowest bit of a word.
template <typename Index> HR_DEVICE u32 bit_first(const u32* words, Index index)
{
    return words[index >> 5] >> (u32(index) & 31u);
}

// Collects the lowest bits of words, one for each of ROWS rows: no branch, no predicate. The bits
// of the last ROWS words are the highest ROWS of the result, those of the last word on top.
HR_DEVICE u32 push_bit(u32 bits, u32 word) { return funnel_right(bits, word, 1u); }

// First index of a sorted list that is not below `value` tells whether it is in it.
template <typename T>
HR_DEVICE bool in_sorted(const T* list, u32 count, T value)
{
    u32 low = 0, high = count;
    while (low < high) {
        const u32 middle = (low + high) / 2;
        if (list[middle] < value) low = middle + 1;
        else high = middle;
    }
    return low < count && list[low] == value;
}

} // namespace hr
