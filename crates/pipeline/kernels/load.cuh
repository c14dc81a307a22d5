// Loads of four consecutive rows of a streamed column by one thread.
//
// Streamed bytes are read once: they go past L1 (no_allocate) so that build tables stay in
// it. A thread reads 16 bytes at a time where the column start allows; a column that starts
// anywhere else, and the last rows of a segment, are put together from aligned words that
// hold at least one byte of the column, so nothing is read that may not be read.
#pragma once
#include "headrace/types.cuh"

namespace hr {

#ifndef HEADRACE_HOST_SHIM
HR_DEVICE void stream_words(u32 (&out)[1], const void* from)
{
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(out[0]) : "l"(from));
}
HR_DEVICE void stream_words(u32 (&out)[2], const void* from)
{
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
        : "=r"(out[0]), "=r"(out[1]) : "l"(from));
}
template <u32 WORDS>
HR_DEVICE void stream_words(u32 (&out)[WORDS], const void* from)
{
#pragma unroll
    for (u32 k = 0; k < WORDS; k += 4) {
        asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(out[k]), "=r"(out[k + 1]), "=r"(out[k + 2]), "=r"(out[k + 3])
            : "l"(static_cast<const u8*>(from) + k * 4));
    }
}
HR_DEVICE u32 stream_byte(const void* from)
{
    u32 out;
    asm("ld.global.nc.L1::no_allocate.u8 %0, [%1];" : "=r"(out) : "l"(from));
    return out;
}
HR_DEVICE u32 funnel_right(u32 low, u32 high, u32 shift) { return __funnelshift_r(low, high, shift); }
#endif

// Words of four values of T.
template <typename T> struct Pack { static constexpr u32 words = sizeof(T); };

template <u32 BYTES> struct Unpack;
template <> struct Unpack<1> {
    template <typename T, u32 N> static HR_DEVICE T at(const u32 (&w)[N], u32 i) { return T(u8(w[0] >> (8 * i))); }
};
template <> struct Unpack<2> {
    template <typename T, u32 N> static HR_DEVICE T at(const u32 (&w)[N], u32 i) { return T(u16(w[i / 2] >> (16 * (i & 1)))); }
};
template <> struct Unpack<4> {
    template <typename T, u32 N> static HR_DEVICE T at(const u32 (&w)[N], u32 i) { return bits_as<T>(w[i]); }
};
template <> struct Unpack<8> {
    template <typename T, u32 N> static HR_DEVICE T at(const u32 (&w)[N], u32 i)
    {
        return bits_as<T>(u64(w[2 * i]) | u64(w[2 * i + 1]) << 32);
    }
};
template <> struct Unpack<16> {
    template <typename T, u32 N> static HR_DEVICE T at(const u32 (&w)[N], u32 i)
    {
        const u64 low = u64(w[4 * i]) | u64(w[4 * i + 1]) << 32;
        const u64 high = u64(w[4 * i + 2]) | u64(w[4 * i + 3]) << 32;
        return T(u128(low) | u128(high) << 64);
    }
};

// The words of rows `row ..` of a column that starts at any address, or that ends early:
// slower, exact. Words past the last row are zero.
template <u32 WORDS>
HR_DEVICE void careful_words(u32 (&out)[WORDS], u64 address, u32 bytes)
{
    const u32 skew = u32(address & 3u);
    const u32* words = reinterpret_cast<const u32*>(address - skew);
    u32 low = words[0];
#pragma unroll
    for (u32 k = 0; k < WORDS; ++k) {
        const u32 high = (k + 1) * 4 < bytes + skew ? words[k + 1] : 0u;
        out[k] = funnel_right(low, high, skew * 8);
        low = high;
    }
}

// Values of rows `row .. row + 4`; what rows past `rows` get is of no meaning. `row < rows`
// must hold.
template <typename T>
HR_DEVICE void load4(T (&out)[4], const void* column, u32 row, u32 rows)
{
    constexpr u32 words = Pack<T>::words;
    constexpr u64 alignment = words * 4 < 16 ? words * 4 : 16;
    const u64 address = reinterpret_cast<u64>(column) + u64(row) * sizeof(T);
    u32 pack[words];
    const u32 left = rows - row;
    if (left >= 4 && (address & (alignment - 1)) == 0) {
        stream_words(pack, reinterpret_cast<const void*>(address));
    } else {
        careful_words(pack, address, (left < 4 ? left : 4) * u32(sizeof(T)));
    }
#pragma unroll
    for (u32 i = 0; i < 4; ++i) out[i] = Unpack<sizeof(T)>::template at<T>(pack, i);
}

// Four bits of a bitmap (validity, or booleans) from row `row` on, a multiple of four.
HR_DEVICE u32 load_bits4(const void* bitmap, u32 row)
{
    return stream_byte(static_cast<const u8*>(bitmap) + (row >> 3)) >> (row & 4u) & 15u;
}

// As above for validity; without a bitmap there are no NULLs.
HR_DEVICE u32 load_validity4(const void* bitmap, u32 row)
{
    return bitmap == nullptr ? 15u : load_bits4(bitmap, row);
}

// An entry of a table that is read at random.
template <typename T>
HR_DEVICE T entry(const T* table, u64 index) { return table[index]; }

// Bit `index` of a bitmap.
HR_DEVICE bool bit(const u32* words, u64 index)
{
    return words[index >> 5] >> (index & 31u) & 1u;
}

} // namespace hr
