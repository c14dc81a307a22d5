// Accumulators: one running value a group, in registers, in a block's shared memory or in
// global memory. Integer totals are exact: they are kept as 32-bit limbs (little-endian,
// two's complement), each added with the native 32-bit atomic, whose old value tells the
// carry into the next. A limb that nothing is added to costs nothing, so a total of small
// values takes one atomic a row.
#pragma once
#include "headrace/types.cuh"

namespace hr {

template <u32 LIMBS>
HR_DEVICE void add_limbs(u32* to, const u32 (&value)[LIMBS])
{
    u32 carry = 0;
#pragma unroll
    for (u32 k = 0; k < LIMBS; ++k) {
        const u64 sum = u64(value[k]) + carry;
        const u32 addend = u32(sum);
        carry = u32(sum >> 32);
        if (addend != 0) {
            const u32 old = atomicAdd(to + k, addend);
            carry += u32(old + addend < old);
        }
    }
}

// Adds a signed value of at most 128 bits, sign-extended to all limbs.
template <u32 LIMBS, typename T>
HR_DEVICE void add_total(u32* to, T value)
{
    u32 limbs[LIMBS];
    const u32 sign = value < T(0) ? ~0u : 0u;
#pragma unroll
    for (u32 k = 0; k < LIMBS; ++k) limbs[k] = k * 4 < sizeof(T) ? u32(value >> (k * 32 % (sizeof(T) * 8))) : sign;
    add_limbs<LIMBS>(to, limbs);
}

// Counts a row of the group `at` in shared memory, which has no atomic addition of 64 bits: threads that would try at one place
// wait for each other there. Where all that are here count the same group, as they do when rows are paired with a row of a build,
// one counts for all.
HR_DEVICE void count_wide(u64* counts, u32 at)
{
    u32 rows = 1;
#if !defined(HEADRACE_HOST_SHIM) && __CUDA_ARCH__ >= 700
    const u32 mask = __activemask();
    int is_same;
    __match_all_sync(mask, at, &is_same);
    if (is_same) {
        if (lane() != u32(__ffs(mask)) - 1) return;
        rows = u32(__popc(mask));
    }
#endif
    u32* halves = reinterpret_cast<u32*>(counts + at);
    const u32 old = atomicAdd(halves, rows);
    if (old + rows < old) atomicAdd(halves + 1, 1u);
}

// Floats as unsigned integers of the same order: -0 is 0, NaN is the greatest.
HR_DEVICE u64 ordered(f64 value)
{
    if (value != value) return ~0ull - 1;
    const u64 bits = bits_as<u64>(value == 0.0 ? 0.0 : value);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// Running minimum and maximum. The plain read may be old, never ahead: it only spares
// atomics that would change nothing.
template <typename T> HR_DEVICE void lower(T* to, T value)
{
    if (value < *static_cast<volatile T*>(to)) atomicMin(to, value);
}
template <typename T> HR_DEVICE void raise_to(T* to, T value)
{
    if (value > *static_cast<volatile T*>(to)) atomicMax(to, value);
}

// Running minimum and maximum of 128-bit values, of which no atomic is known to every GPU: a
// sequence lock. An entry is eight words: the value, then its version, which is 0 before the
// first value, odd while one thread writes and another even number after. A reader that finds
// one even version before and after has read one value, and values only improve: what is no
// better than that is done.
constexpr u32 WIDE_WORDS = 8, WIDE_VERSION = 4;

HR_DEVICE i128 wide_value(const volatile u32* entry)
{
    const u64 low = u64(entry[0]) | u64(entry[1]) << 32;
    const u64 high = u64(entry[2]) | u64(entry[3]) << 32;
    return i128(u128(low) | u128(high) << 64);
}
template <bool MIN>
HR_DEVICE void extreme_wide(u32* to, i128 value)
{
    volatile u32* entry = to;
    while (true) {
        const u32 version = entry[WIDE_VERSION];
        if (version & 1u) continue;
        __threadfence();
        const i128 seen = wide_value(entry);
        __threadfence();
        if (entry[WIDE_VERSION] != version) continue;
        if (version != 0 && !(MIN ? value < seen : value > seen)) return;
        if (atomicCAS(to + WIDE_VERSION, version, version + 1u) == version) {
            __threadfence();
            for (u32 k = 0; k < 4; ++k) entry[k] = u32(u128(value) >> (32 * k));
            __threadfence();
            const u32 next = version + 2u;
            entry[WIDE_VERSION] = next == 0 ? 2u : next;
            return;
        }
    }
}

// That a group exists, where its number of rows is of no interest: in shared memory by a
// native atomic, in global memory by a store that all but the first few rows skip.
HR_DEVICE void mark(u32* seen)
{
    atomicOr(seen, 1u);
}
HR_DEVICE void mark(u64* seen)
{
    if (*static_cast<volatile u64*>(seen) == 0) *static_cast<volatile u64*>(seen) = 1;
}

// Totals over the lanes of a warp, all of which must take part.
template <typename T> HR_DEVICE T warp_sum(T value)
{
#pragma unroll
    for (u32 offset = HR_LANES / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}
// Shuffles know no 128-bit values.
HR_DEVICE i128 warp_sum(i128 value)
{
#pragma unroll
    for (u32 offset = HR_LANES / 2; offset > 0; offset /= 2) {
        const u64 low = __shfl_xor_sync(~0u, u64(value), offset);
        const u64 high = __shfl_xor_sync(~0u, u64(u128(value) >> 64), offset);
        value = i128(u128(value) + (u128(low) | u128(high) << 64));
    }
    return value;
}
template <typename T> HR_DEVICE T warp_min(T value)
{
#pragma unroll
    for (u32 offset = HR_LANES / 2; offset > 0; offset /= 2) {
        const T other = __shfl_xor_sync(~0u, value, offset);
        if (other < value) value = other;
    }
    return value;
}
template <typename T> HR_DEVICE T warp_max(T value)
{
#pragma unroll
    for (u32 offset = HR_LANES / 2; offset > 0; offset /= 2) {
        const T other = __shfl_xor_sync(~0u, value, offset);
        if (other > value) value = other;
    }
    return value;
}
HR_DEVICE i128 shuffled(i128 value, u32 offset)
{
    const u64 low = __shfl_xor_sync(~0u, u64(value), offset);
    const u64 high = __shfl_xor_sync(~0u, u64(u128(value) >> 64), offset);
    return i128(u128(low) | u128(high) << 64);
}
HR_DEVICE i128 warp_min(i128 value)
{
#pragma unroll
    for (u32 offset = HR_LANES / 2; offset > 0; offset /= 2) {
        const i128 other = shuffled(value, offset);
        if (other < value) value = other;
    }
    return value;
}
HR_DEVICE i128 warp_max(i128 value)
{
#pragma unroll
    for (u32 offset = HR_LANES / 2; offset > 0; offset /= 2) {
        const i128 other = shuffled(value, offset);
        if (other > value) value = other;
    }
    return value;
}
HR_DEVICE bool first_lane() { return (threadIdx.x & 31u) == 0; }

// Adds what each thread of the warp counted, all of which must be here.
template <typename T> HR_DEVICE void add_count(u64* to, T count)
{
    const u64 all = warp_sum(u64(count));
    if (first_lane() && all != 0) atomicAdd(to, all);
}

// Copies a table into shared memory; both are multiples of 16 bytes and so aligned.
HR_DEVICE void copy_to_shared(void* to, const void* from, u32 bytes)
{
    struct alignas(16) Words { u32 word[4]; };
#pragma unroll 2
    for (u32 i = threadIdx.x; i < bytes / 16; i += BLOCK_THREADS)
        static_cast<Words*>(to)[i] = static_cast<const Words*>(from)[i];
}
template <typename T> HR_DEVICE void fill_shared(T* to, u32 count, T value)
{
#pragma unroll 1
    for (u32 i = threadIdx.x; i < count; i += BLOCK_THREADS) to[i] = value;
}

// Merges a block's accumulators into the global ones. `replicas` copies of `groups` entries
// lie behind each other.
template <typename T>
HR_DEVICE void flush_count(u64* to, const T* from, u32 groups, u32 replicas)
{
    for (u32 g = threadIdx.x; g < groups; g += BLOCK_THREADS) {
        u64 total = 0;
        for (u32 k = 0; k < replicas; ++k) total += from[g + k * groups];
        if (total != 0) atomicAdd(to + g, total);
    }
}
HR_DEVICE void flush_total64(u64* to, const u32* from, u32 groups, u32 replicas)
{
    for (u32 g = threadIdx.x; g < groups; g += BLOCK_THREADS) {
        u64 total = 0;
        for (u32 k = 0; k < replicas; ++k) {
            const u32* limbs = from + 2 * (g + k * groups);
            total += u64(limbs[0]) | u64(limbs[1]) << 32;
        }
        if (total != 0) atomicAdd(to + g, total);
    }
}
HR_DEVICE void flush_f64(f64* to, const f64* from, u32 groups, u32 replicas)
{
    for (u32 g = threadIdx.x; g < groups; g += BLOCK_THREADS) {
        f64 total = 0;
        for (u32 k = 0; k < replicas; ++k) total += from[g + k * groups];
        if (total != 0 || total != total) atomicAdd(to + g, total);
    }
}
template <u32 LIMBS>
HR_DEVICE void flush_total(u32* to, const u32* from, u32 groups, u32 replicas)
{
    for (u32 g = threadIdx.x; g < groups; g += BLOCK_THREADS) {
        for (u32 k = 0; k < replicas; ++k) {
            u32 limbs[LIMBS];
#pragma unroll
            for (u32 j = 0; j < LIMBS; ++j) limbs[j] = from[(g + k * groups) * LIMBS + j];
            add_limbs<LIMBS>(to + u64(g) * LIMBS, limbs);
        }
    }
}
template <bool MIN>
HR_DEVICE void flush_wide(u32* to, const u32* from, u32 groups, u32 replicas)
{
    for (u32 g = threadIdx.x; g < groups; g += BLOCK_THREADS) {
        for (u32 k = 0; k < replicas; ++k) {
            const u32* entry = from + u64(g + k * groups) * WIDE_WORDS;
            if (entry[WIDE_VERSION] != 0) extreme_wide<MIN>(to + u64(g) * WIDE_WORDS, wide_value(entry));
        }
    }
}
template <typename T>
HR_DEVICE void flush_min(T* to, const T* from, u32 groups, u32 replicas)
{
    for (u32 g = threadIdx.x; g < groups; g += BLOCK_THREADS)
        for (u32 k = 0; k < replicas; ++k) lower(to + g, from[g + k * groups]);
}
template <typename T>
HR_DEVICE void flush_max(T* to, const T* from, u32 groups, u32 replicas)
{
    for (u32 g = threadIdx.x; g < groups; g += BLOCK_THREADS)
        for (u32 k = 0; k < replicas; ++k) raise_to(to + g, from[g + k * groups]);
}

} // namespace hr
