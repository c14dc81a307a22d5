// Bits that a warp's rows have in common with rows of a build, for all pairs of them: sixteen rows of the build at a time.
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
            ones[r] = common_ones(at, at);
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
        other = common_ones(at, at);
#pragma unroll
        for (u32 half = 0; half < ROWS / 2; ++half) {
            common[half] = common_ones(row_of(2 * half), at) | common_ones(row_of(2 * half + 1), at) << 16;
        }
    }

    // Stands behind the loop: nobody counts anew what another still reads.
    HR_DEVICE void leave() const
    {
        if (is_whole) __syncwarp();
    }

    HR_DEVICE u32 common_of(u32 r) const { return common[r / 2] >> (16 * (r % 2)) & 0xffffu; }

    HR_DEVICE f64 tanimoto(u32 r) const
    {
        const u32 either = ones[r] + other - common_of(r);
        return either == 0 ? 1.0 : f64(common_of(r)) / f64(either);
    }

    HR_DEVICE i64 hamming_distance(u32 r) const { return i64(ones[r]) + other - 2 * i64(common_of(r)); }

private:
    HR_DEVICE const u8* row_of(u32 r) const { return own + u64(least(lane() * ROWS + r, last)) * WIDTH; }

    static HR_DEVICE void read(u32 (&quad)[4], const u8* from)
    {
        if (reinterpret_cast<u64>(from) % 16 == 0) {
            load_quad(quad, from);
        } else {
#pragma unroll
            for (u32 word = 0; word < 4; ++word) quad[word] = text_word(Text(from, 16), word);
        }
    }

    static HR_DEVICE u32 common_ones(const u8* a, const u8* b)
    {
        u32 count = 0;
        for (u32 at = 0; at < WIDTH; at += 16) {
            u32 left[4], right[4];
            read(left, a + at);
            read(right, b + at);
#pragma unroll
            for (u32 k = 0; k < 4; ++k) count += __popc(left[k] & right[k]);
        }
        return count;
    }

#ifdef HR_BITS_ON_TENSOR_CORES
    // 64 bytes a turn, of which a thread of four has 16: in which order the bits are counted does not matter.
    static constexpr u32 TURNS = (WIDTH + 63) / 64;

    static HR_DEVICE void load(u32 (&quad)[4], const u8* from, u32 at)
    {
        if (at < WIDTH) {
            load_quad(quad, from + at);
        } else {
#pragma unroll
            for (u32 k = 0; k < 4; ++k) quad[k] = 0;
        }
    }

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
        u32 left[TURNS][2][4];
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const u8* from = theirs + u64(warp->slots[group + 8 * half]) * WIDTH;
            u32 count = 0;
#pragma unroll
            for (u32 turn = 0; turn < TURNS; ++turn) {
                u32 quad[4];
                load(quad, from, 64 * turn + 16 * part);
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
            for (u32 turn = 0; turn < TURNS; ++turn) {
                u32 quad[4];
                load(quad, from, 64 * turn + 16 * part);
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

} // namespace hr
