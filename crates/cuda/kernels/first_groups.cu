// Selects the first of many groups by the numbers that order them (`group_column.cu`). The host drives three steps: COUNT counts
// the numbers by a digit, LIST lists the groups up to a number, GATHER copies the entries of the listed groups.
#ifndef BLOCK_THREADS
#define BLOCK_THREADS 256
#endif
#define BLOCKS_PER_SM 1
#include "headrace/types.cuh"

// `first_groups.rs` numbers them.
constexpr u32 COUNT = 0, LIST = 1, GATHER = 2;

constexpr u32 DIGIT_BITS = 8, DIGITS = 1u << DIGIT_BITS;

struct Params {
    alignas(8) u32 step;
    // By group, or what is gathered of each group.
    const u64* numbers;
    // Groups; where they are gathered, those on the list.
    u64 rows;
    // COUNT: digits above `shift` + DIGIT_BITS, and where the digit that is counted lies. LIST: the last number that is wanted.
    u64 prefix;
    alignas(8) u32 shift;
    // COUNT: by digit. LIST: how many are on the list.
    u64* counts;
    u32* list;
    // GATHER: words of a group, and where they go.
    u64* to;
    alignas(8) u32 words;
    // LIST: the first number that is wanted, and for how many groups the list has room.
    u64 first_number, room;
};

HR_DEVICE u32 first_row() { return blockIdx.x * BLOCK_THREADS + threadIdx.x; }

HR_DEVICE void count_digits(const Params& p)
{
    HR_DYNAMIC_SHARED(memory);
    u32* counts = reinterpret_cast<u32*>(memory);
    for (u32 digit = threadIdx.x; digit < DIGITS; digit += BLOCK_THREADS) counts[digit] = 0;
    __syncthreads();
    const u32 above = p.shift + DIGIT_BITS;
    for (u64 row = first_row(); row < p.rows; row += u64(gridDim.x) * BLOCK_THREADS) {
        const u64 number = p.numbers[row];
        if (above == 64 || number >> above == p.prefix) atomicAdd(counts + (number >> p.shift & (DIGITS - 1)), 1u);
    }
    __syncthreads();
    for (u32 digit = threadIdx.x; digit < DIGITS; digit += BLOCK_THREADS) {
        if (counts[digit] != 0) atomicAdd(p.counts + digit, u64(counts[digit]));
    }
}

HR_KERNEL headrace_first_groups(HR_CONSTANT Params p)
{
    if (p.step == COUNT) {
        count_digits(p);
        return;
    }
    for (u64 row = first_row(); row < p.rows; row += u64(gridDim.x) * BLOCK_THREADS) {
        if (p.step == LIST) {
            const u64 number = p.numbers[row];
            if (number < p.first_number || number > p.prefix) continue;
            // Of millions that tie, few ask for a place.
            if (*const_cast<const volatile u64*>(p.counts) >= p.room) continue;
            const u64 at = atomicAdd(p.counts, u64(1));
            if (at < p.room) p.list[at] = u32(row);
            continue;
        }
        const u64* from = p.numbers + u64(p.list[row]) * p.words;
        for (u32 word = 0; word < p.words; ++word) p.to[row * p.words + word] = from[word];
    }
}
