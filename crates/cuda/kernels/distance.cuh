// How alike two values of one length are: bits of bytes, floats of vectors. As `columns::distance`, line by line: floats
// are multiplied and added as f64, float i in sum i % 8, and nothing is fused.
#pragma once
#include "headrace/text.cuh"

namespace hr {

// Bytes of N rows from `row` on, `width` each.
template <u32 N>
HR_DEVICE void load_bytes(Text (&out)[N], const void* values, u32 width, u32 row, u32 rows)
{
#pragma unroll
    for (u32 r = 0; r < N; ++r) {
        const u8* at = static_cast<const u8*>(values) + u64(row + r) * width;
        out[r] = row + r < rows ? Text(at, width) : Text(0);
    }
}

// Four words, from a multiple of 16 bytes on. A thread reads a row: what it leaves of a sector must stay in L1.
#ifndef HEADRACE_HOST_SHIM
HR_DEVICE void load_quad(u32 (&out)[4], const void* from)
{
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "l"(from));
}
#else
inline void load_quad(u32 (&out)[4], const void* from) { stream_words(out, from); }
#endif

// Whether two values lie in quads; not where one of them is no value, which has no bytes.
HR_DEVICE bool lies_in_quads(const Text& a, const Text& b)
{
    return a.bytes == b.bytes && ((reinterpret_cast<u64>(a.at) | reinterpret_cast<u64>(b.at) | a.bytes | b.bytes) & 15u) == 0;
}

// Calls `each(n, left, right)` for the quads of two values that lie in them and are as long.
template <typename Each>
HR_DEVICE void for_each_own_quad(const Text& a, const Text& b, const Each& each)
{
// As many as eight floats of f64 are: their lanes are constants, so the sums stay in registers.
#pragma unroll 4
    for (u32 n = 0; n < a.bytes / 16; ++n) {
        u32 left[4], right[4];
        load_quad(left, a.at + 16 * n);
        load_quad(right, b.at + 16 * n);
        each(n, left, right);
    }
}

#if defined(HEADRACE_HOST_SHIM) || defined(HR_UNSTAGED)
template <typename Each>
HR_DEVICE void for_each_quad(const Text& a, const Text& b, const Each& each) { for_each_own_quad(a, b, each); }
#else
// Quads of a row that a warp loads at a time. A block of 1024 threads has 1 KB of shared memory a warp for them, others 2 KB.
constexpr u32 STAGED = BLOCK_THREADS <= 512 ? 4 : 2;

struct alignas(16) Quad {
    u32 words[4];
};

// Where a quad of a thread's row lies: neighbours do not meet in a bank, neither as they are written nor as they are read.
HR_DEVICE u32 staged_at(u32 row, u32 quad) { return row * STAGED + (quad ^ (row / (8 / STAGED)) % STAGED); }

// The warp's, whoever asks: a template would have as many as it has instances.
HR_DEVICE Quad* stage()
{
    __shared__ Quad all[BLOCK_THREADS / 32][32 * STAGED];
    return all[threadIdx.x / 32];
}

// As `for_each_own_quad`. A warp whose threads are all here loads the rows of its threads together, a piece of each at a time:
// a thread that reads a row of its own touches a line of the cache for each 16 bytes.
template <typename Each>
HR_DEVICE void for_each_quad(const Text& a, const Text& b, const Each& each)
{
    const u32 mask = __activemask();
    const bool fits = a.bytes == b.bytes && a.bytes % (16 * STAGED) == 0;
    if (mask != ~0u || !__all_sync(mask, fits)) {
        for_each_own_quad(a, b, each);
        return;
    }
    Quad* own = stage();
    const u32 lane = threadIdx.x % 32, quad = lane % STAGED;
    const u8* from[STAGED];
#pragma unroll
    for (u32 k = 0; k < STAGED; ++k) {
        const u32 row = k * (32 / STAGED) + lane / STAGED;
        from[k] = reinterpret_cast<const u8*>(__shfl_sync(mask, reinterpret_cast<u64>(a.at), row)) + 16 * quad;
    }
    for (u32 n = 0; n < a.bytes / 16; n += STAGED) {
#pragma unroll
        for (u32 k = 0; k < STAGED; ++k) {
            stream_words(own[staged_at(k * (32 / STAGED) + lane / STAGED, quad)].words, from[k] + 16 * n);
        }
        __syncwarp();
#pragma unroll
        for (u32 k = 0; k < STAGED; ++k) {
            const Quad left = own[staged_at(lane, k)];
            u32 right[4];
            load_quad(right, b.at + 16 * (n + k));
            each(n + k, left.words, right);
        }
        __syncwarp();
    }
}
#endif

// Calls `each(left, right)` for the words of two values that are as long.
template <typename Each>
HR_DEVICE void for_each_word(const Text& a, const Text& b, const Each& each)
{
    if (lies_in_quads(a, b)) {
        for_each_quad(a, b, [&](u32, const u32 (&left)[4], const u32 (&right)[4]) {
#pragma unroll
            for (u32 k = 0; k < 4; ++k) each(left[k], right[k]);
        });
        return;
    }
    const u32 bytes = a.bytes < b.bytes ? a.bytes : b.bytes;
    for (u32 word = 0; 4 * word < bytes; ++word) each(text_word(a, word), text_word(b, word));
}

HR_DEVICE i64 ones(const Text& a)
{
    u32 count = 0;
    for_each_word(a, a, [&](u32 word, u32) { count += __popc(word); });
    return count;
}

HR_DEVICE i64 hamming_distance(const Text& a, const Text& b)
{
    u32 count = 0;
    for_each_word(a, b, [&](u32 left, u32 right) { count += __popc(left ^ right); });
    return count;
}

HR_DEVICE f64 tanimoto(const Text& a, const Text& b)
{
    u32 common = 0, either = 0;
    for_each_word(a, b, [&](u32 left, u32 right) {
        common += __popc(left & right);
        either += __popc(left | right);
    });
    return either == 0 ? 1.0 : f64(common) / f64(either);
}

// The sums of a vector's floats.
struct Lanes {
    f64 sums[8];
    HR_DEVICE Lanes()
    {
#pragma unroll
        for (u32 lane = 0; lane < 8; ++lane) sums[lane] = 0.0;
    }
    HR_DEVICE f64 sum()
    {
#pragma unroll
        for (u32 half = 4; half > 0; half /= 2) {
#pragma unroll
            for (u32 lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
        }
        return sums[0];
    }
};

template <typename Float> HR_DEVICE f64 float_of(const u32* words, u32 nth);
template <> HR_DEVICE f64 float_of<f32>(const u32* words, u32 nth) { return f64(bits_as<f32>(words[nth])); }
template <> HR_DEVICE f64 float_of<f64>(const u32* words, u32 nth)
{
    return bits_as<f64>(u64(words[2 * nth]) | u64(words[2 * nth + 1]) << 32);
}

// Calls `each(lane, left, right)` for the floats of two vectors that are as long.
template <typename Float, typename Each>
HR_DEVICE void for_each_float(const Text& a, const Text& b, const Each& each)
{
    constexpr u32 FLOATS = 16 / u32(sizeof(Float));
    if (lies_in_quads(a, b)) {
        for_each_quad(a, b, [&](u32 n, const u32 (&left)[4], const u32 (&right)[4]) {
            // The lanes stay in registers: which of them a quad's floats go to is told where it is compiled.
#pragma unroll
            for (u32 part = 0; part < 8 / FLOATS; ++part) {
                if (n % (8 / FLOATS) != part) continue;
#pragma unroll
                for (u32 k = 0; k < FLOATS; ++k) {
                    each(part * FLOATS + k, float_of<Float>(left, k), float_of<Float>(right, k));
                }
            }
        });
        return;
    }
    // Eight floats at a time, likewise.
    constexpr u32 WORDS = 2 * u32(sizeof(Float));
    const u32 bytes = a.bytes < b.bytes ? a.bytes : b.bytes;
    for (u32 first = 0; 4 * first < bytes; first += WORDS) {
        u32 left[WORDS], right[WORDS];
#pragma unroll
        for (u32 k = 0; k < WORDS; ++k) {
            const bool is_there = 4 * (first + k) < bytes;
            left[k] = is_there ? text_word(a, first + k) : 0;
            right[k] = is_there ? text_word(b, first + k) : 0;
        }
#pragma unroll
        for (u32 lane = 0; lane < 8; ++lane) {
            if (4 * first + (lane + 1) * u32(sizeof(Float)) <= bytes) {
                each(lane, float_of<Float>(left, lane), float_of<Float>(right, lane));
            }
        }
    }
}

template <typename Float>
HR_DEVICE f64 dot(const Text& a, const Text& b)
{
    Lanes lanes;
    for_each_float<Float>(a, b, [&](u32 lane, f64 left, f64 right) { lanes.sums[lane] += left * right; });
    return lanes.sum();
}

template <typename Float>
HR_DEVICE f64 l2_distance(const Text& a, const Text& b)
{
    Lanes lanes;
    for_each_float<Float>(a, b, [&](u32 lane, f64 left, f64 right) {
        lanes.sums[lane] += (left - right) * (left - right);
    });
    return sqrt(lanes.sum());
}

template <typename Float>
HR_DEVICE f64 cosine_distance(const Text& a, const Text& b)
{
    Lanes both, of_a, of_b;
    for_each_float<Float>(a, b, [&](u32 lane, f64 left, f64 right) {
        both.sums[lane] += left * right;
        of_a.sums[lane] += left * left;
        of_b.sums[lane] += right * right;
    });
    const f64 cosine = both.sum() / (sqrt(of_a.sum()) * sqrt(of_b.sum()));
    return 1.0 - (cosine > 1.0 ? 1.0 : cosine < -1.0 ? -1.0 : cosine);
}

} // namespace hr
