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

// Four words of two values. Both begin at a multiple of 16 bytes and are as long.
struct Quads {
    u32 left[4], right[4];
};

HR_DEVICE bool lies_in_quads(const Text& a, const Text& b)
{
    return ((reinterpret_cast<u64>(a.at) | reinterpret_cast<u64>(b.at) | a.bytes | b.bytes) & 15u) == 0;
}

HR_DEVICE Quads quads(const Text& a, const Text& b, u32 at)
{
    Quads both;
    load_quad(both.left, a.at + 16 * at);
    load_quad(both.right, b.at + 16 * at);
    return both;
}

// Calls `each(left, right)` for the words of two values that are as long.
template <typename Each>
HR_DEVICE void for_each_word(const Text& a, const Text& b, const Each& each)
{
    const u32 bytes = a.bytes < b.bytes ? a.bytes : b.bytes;
    if (lies_in_quads(a, b)) {
#pragma unroll 4
        for (u32 at = 0; at < bytes / 16; ++at) {
            const Quads both = quads(a, b, at);
#pragma unroll
            for (u32 k = 0; k < 4; ++k) each(both.left[k], both.right[k]);
        }
        return;
    }
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

// Calls `each(lane, left, right)` for the floats of two vectors that are as long. Eight at a time, so that the lanes stay
// in registers.
template <typename Float, typename Each>
HR_DEVICE void for_each_float(const Text& a, const Text& b, const Each& each)
{
    constexpr u32 WORDS = 2 * u32(sizeof(Float));
    const u32 bytes = a.bytes < b.bytes ? a.bytes : b.bytes;
    const bool in_quads = lies_in_quads(a, b);
    for (u32 first = 0; 4 * first < bytes; first += WORDS) {
        u32 left[WORDS], right[WORDS];
#pragma unroll
        for (u32 word = 0; word < WORDS; word += 4) {
            if (in_quads && 4 * (first + word) < bytes) {
                const Quads both = quads(a, b, (first + word) / 4);
#pragma unroll
                for (u32 k = 0; k < 4; ++k) {
                    left[word + k] = both.left[k];
                    right[word + k] = both.right[k];
                }
                continue;
            }
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                const bool is_there = 4 * (first + word + k) < bytes;
                left[word + k] = is_there ? text_word(a, first + word + k) : 0;
                right[word + k] = is_there ? text_word(b, first + word + k) : 0;
            }
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
