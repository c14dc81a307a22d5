// Bits that a warp's rows have in common with a constant, or with rows of a build: sixteen of these at a time, for all pairs.
// The tensor cores count them where a whole warp is there: a 16 by 8 product of bits is a count of each pair's common ones.
#pragma once
#include "headrace/distance.cuh"
#include "headrace/probe.cuh"

namespace hr {

// Rows of a build that are counted at a time.
constexpr u32 PAIRED = 16;

// What a warp has in shared memory.
template <u32 ROWS> struct alignas(16) PairCounts {
    // Common ones by row of the build and row of the warp, two of these a word. The pad keeps the threads that write a product
    // in banks of their own.
    u32 common[PAIRED][HR_LANES * ROWS / 2 + 4];
    // Ones of each row of the build, and where it lies.
    u32 ones[PAIRED], slots[PAIRED];
};

// Whether none of the rows of the threads that are here is alive: they leave together, so that warps stay whole.
HR_DEVICE bool none_alive(u32 alive) { return __ballot_sync(__activemask(), alive != 0) == 0; }

// The first row of the build that rows are paired with: the same for all rows of these threads that have one.
template <u32 ROWS>
HR_DEVICE u32 first_of_pairs(u32 together, const u32 (&match)[ROWS])
{
    u32 first = EMPTY;
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r) first = least(first, match[r]);
    return __reduce_min_sync(together, first);
}

#if !defined(HEADRACE_HOST_SHIM) && __CUDA_ARCH__ >= 800
#define HR_BITS_ON_TENSOR_CORES
// counts += the common ones of 16 rows and 8 columns of 256 bits, of which each thread has its part.
HR_DEVICE void add_common(u32 (&counts)[4], const u32 (&rows)[4], u32 low, u32 high)
{
    asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(counts[0]), "+r"(counts[1]), "+r"(counts[2]), "+r"(counts[3])
        : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(low), "r"(high));
}
#endif

// 16 bytes, wherever they lie.
HR_DEVICE void read_quad(u32 (&quad)[4], const u8* from)
{
    if (reinterpret_cast<u64>(from) % 16 == 0) {
        load_quad(quad, from);
    } else {
#pragma unroll
        for (u32 word = 0; word < 4; ++word) quad[word] = text_word(Text(from, 16), word);
    }
}

template <u32 WIDTH>
HR_DEVICE u32 common_ones(const u8* a, const u8* b)
{
    u32 count = 0;
    for (u32 at = 0; at < WIDTH; at += 16) {
        u32 left[4], right[4];
        read_quad(left, a + at);
        read_quad(right, b + at);
#pragma unroll
        for (u32 k = 0; k < 4; ++k) count += __popc(left[k] & right[k]);
    }
    return count;
}

HR_DEVICE f64 tanimoto_of(u32 common, u32 ones, u32 other)
{
    const u32 either = ones + other - common;
    return either == 0 ? 1.0 : f64(common) / f64(either);
}

HR_DEVICE i64 hamming_of(u32 common, u32 ones, u32 other) { return i64(ones) + other - 2 * i64(common); }

#ifdef HR_BITS_ON_TENSOR_CORES
// A product takes 64 bytes a turn, of which a thread of four has 16: in which order the bits are counted does not matter.
template <u32 WIDTH> constexpr u32 TURNS = (WIDTH + 63) / 64;

// What a thread has of a value in a turn.
template <u32 WIDTH>
HR_DEVICE void load_part(u32 (&quad)[4], const u8* from, u32 turn)
{
    const u32 at = 64 * turn + 16 * (lane() % 4);
    if (at < WIDTH) {
        load_quad(quad, from + at);
    } else {
#pragma unroll
        for (u32 k = 0; k < 4; ++k) quad[k] = 0;
    }
}
#endif

// The pairs of a thread's rows with rows of a build, which the threads `together` take in turn. `WIDTH` bytes a value, a
// multiple of 16 up to 256. The warp's part of the shared memory is used by whole warps alone: threads that are not all here
// may meet others of their warp in this loop, and count for themselves.
template <u32 ROWS, u32 WIDTH> struct Pairs {
    static_assert(WIDTH % 16 == 0 && WIDTH <= 256, "quads");

    PairCounts<ROWS>* warp;
    bool is_whole;
    // The warp's first row, and the last one that exists, counted from there.
    const u8* own;
    u32 last;
    const u8* theirs;
    // Ones of the thread's rows.
    u32 ones[ROWS];
    // Of the row of the build whose turn it is: common ones, two rows a word, and its own.
    u32 common[(ROWS + 1) / 2], other;

    HR_DEVICE Pairs(u8* shared, u32 together, const void* values, u32 row, u32 rows, const u8* theirs) : theirs(theirs)
    {
        const u32 first = row - lane() * ROWS;
        warp = reinterpret_cast<PairCounts<ROWS>*>(shared) + threadIdx.x / HR_LANES;
        own = static_cast<const u8*>(values) + u64(first) * WIDTH;
        last = rows - 1 - first;
#ifdef HR_BITS_ON_TENSOR_CORES
        is_whole = together == ~0u && (reinterpret_cast<u64>(own) | reinterpret_cast<u64>(theirs)) % 16 == 0;
#else
        is_whole = false;
#endif
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
            const u8* at = row_of(r);
            ones[r] = common_ones<WIDTH>(at, at);
        }
    }

    // Takes a row of the build, whose place is `slot`: the first of sixteen has them all counted.
    HR_DEVICE void take(u32 turn, const u32* next, u32 slot)
    {
#ifdef HR_BITS_ON_TENSOR_CORES
        if (is_whole) {
            if (turn % PAIRED == 0) count_together(next, slot);
#pragma unroll
            for (u32 half = 0; half < ROWS / 2; ++half) common[half] = warp->common[turn % PAIRED][lane() * (ROWS / 2) + half];
            other = warp->ones[turn % PAIRED];
            return;
        }
#endif
        const u8* at = theirs + u64(slot) * WIDTH;
        other = common_ones<WIDTH>(at, at);
#pragma unroll
        for (u32 half = 0; half < ROWS / 2; ++half) {
            common[half] = common_ones<WIDTH>(row_of(2 * half), at) | common_ones<WIDTH>(row_of(2 * half + 1), at) << 16;
        }
    }

    // Stands behind the loop: nobody counts anew what another still reads.
    HR_DEVICE void leave() const
    {
        if (is_whole) __syncwarp();
    }

    HR_DEVICE u32 common_of(u32 r) const { return common[r / 2] >> (16 * (r % 2)) & 0xffffu; }

    HR_DEVICE f64 tanimoto(u32 r) const { return tanimoto_of(common_of(r), ones[r], other); }
    HR_DEVICE i64 hamming_distance(u32 r) const { return hamming_of(common_of(r), ones[r], other); }

private:
    HR_DEVICE const u8* row_of(u32 r) const { return own + u64(least(lane() * ROWS + r, last)) * WIDTH; }

#ifdef HR_BITS_ON_TENSOR_CORES
    HR_DEVICE void count_together(const u32* next, u32 slot)
    {
        // The counts before have been read.
        __syncwarp();
        for (u32 n = 0; n < PAIRED; ++n) {
            if (lane() == n) warp->slots[n] = slot;
            // Behind the last one, that is counted again.
            const u32 follows = next[slot];
            slot = follows == EMPTY ? slot : follows;
        }
        __syncwarp();
        const u32 group = lane() / 4, part = lane() % 4;
        // Rows `group` and `group + 8` of the build, as the product wants them.
        u32 left[TURNS<WIDTH>][2][4];
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const u8* from = theirs + u64(warp->slots[group + 8 * half]) * WIDTH;
            u32 count = 0;
#pragma unroll
            for (u32 turn = 0; turn < TURNS<WIDTH>; ++turn) {
                u32 quad[4];
                load_part<WIDTH>(quad, from, turn);
#pragma unroll
                for (u32 k = 0; k < 4; ++k) {
                    left[turn][k / 2][half + 2 * (k % 2)] = quad[k];
                    count += __popc(quad[k]);
                }
            }
            count += __shfl_xor_sync(~0u, count, 1);
            count += __shfl_xor_sync(~0u, count, 2);
            if (part == 0) warp->ones[group + 8 * half] = count;
        }
#pragma unroll 2
        for (u32 eight = 0; eight < 4 * ROWS; ++eight) {
            const u8* from = own + u64(least(8 * eight + group, last)) * WIDTH;
            u32 counts[4] = {0, 0, 0, 0};
#pragma unroll
            for (u32 turn = 0; turn < TURNS<WIDTH>; ++turn) {
                u32 quad[4];
                load_part<WIDTH>(quad, from, turn);
                add_common(counts, left[turn][0], quad[0], quad[1]);
                add_common(counts, left[turn][1], quad[2], quad[3]);
            }
            warp->common[group][4 * eight + part] = counts[0] | counts[1] << 16;
            warp->common[group + 8][4 * eight + part] = counts[2] | counts[3] << 16;
        }
        __syncwarp();
    }
#endif
};

// How alike the thread's rows are to a constant, whose ones the host has counted.
template <u32 ROWS, u32 WIDTH> struct Likeness {
    static_assert(WIDTH % 16 == 0 && WIDTH <= 256, "quads");

    u32 common[ROWS], ones[ROWS], other;

    HR_DEVICE Likeness(u8* shared, const void* values, u32 row, u32 rows, const Text& constant, u32 constant_ones)
        : other(constant_ones)
    {
        const u32 first = row - lane() * ROWS, last = rows - 1 - first;
        const u8* own = static_cast<const u8*>(values) + u64(first) * WIDTH;
#ifdef HR_BITS_ON_TENSOR_CORES
        if (__activemask() == ~0u && (reinterpret_cast<u64>(own) | reinterpret_cast<u64>(constant.at)) % 16 == 0) {
            count_together(reinterpret_cast<u32*>(shared) + threadIdx.x / HR_LANES * (HR_LANES * ROWS), own, last, constant.at);
            return;
        }
#endif
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
            const u8* at = own + u64(least(lane() * ROWS + r, last)) * WIDTH;
            common[r] = common_ones<WIDTH>(at, constant.at);
            ones[r] = common_ones<WIDTH>(at, at);
        }
    }

    HR_DEVICE f64 tanimoto(u32 r) const { return tanimoto_of(common[r], ones[r], other); }
    HR_DEVICE i64 hamming_distance(u32 r) const { return hamming_of(common[r], ones[r], other); }

#ifdef HR_BITS_ON_TENSOR_CORES
private:
    // Sixteen rows a product. Its first column is the constant, its second one has all bits and so counts a row's own ones.
    HR_DEVICE void count_together(u32* counts, const u8* own, u32 last, const u8* constant)
    {
        const u32 group = lane() / 4;
        u32 right[TURNS<WIDTH>][4];
#pragma unroll
        for (u32 turn = 0; turn < TURNS<WIDTH>; ++turn) {
            load_part<WIDTH>(right[turn], constant, turn);
#pragma unroll
            for (u32 k = 0; k < 4; ++k) right[turn][k] = group == 0 ? right[turn][k] : group == 1 ? ~0u : 0u;
        }
        // The counts before have been read.
        __syncwarp();
#pragma unroll 2
        for (u32 sixteen = 0; sixteen < 2 * ROWS; ++sixteen) {
            const u8* low = own + u64(least(16 * sixteen + group, last)) * WIDTH;
            const u8* high = own + u64(least(16 * sixteen + group + 8, last)) * WIDTH;
            u32 sums[4] = {0, 0, 0, 0};
#pragma unroll
            for (u32 turn = 0; turn < TURNS<WIDTH>; ++turn) {
                u32 a[4], b[4];
                load_part<WIDTH>(a, low, turn);
                load_part<WIDTH>(b, high, turn);
                add_common(sums, {a[0], b[0], a[1], b[1]}, right[turn][0], right[turn][1]);
                add_common(sums, {a[2], b[2], a[3], b[3]}, right[turn][2], right[turn][3]);
            }
            if (lane() % 4 == 0) {
                counts[16 * sixteen + group] = sums[0] | sums[1] << 16;
                counts[16 * sixteen + group + 8] = sums[2] | sums[3] << 16;
            }
        }
        __syncwarp();
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
            const u32 both = counts[lane() * ROWS + r];
            common[r] = both & 0xffffu;
            ones[r] = both >> 16;
        }
    }
#endif
};

} // namespace hr
