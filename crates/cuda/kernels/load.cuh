// Loads of a thread's consecutive rows of a streamed column: HR_ROWS of them, or a single one.
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
HR_DEVICE u32 byte_perm(u32 low, u32 high, u32 selector) { return __byte_perm(low, high, selector); }
#endif

// Words of N values of T.
template <typename T, u32 N> struct Pack { static constexpr u32 words = N * u32(sizeof(T)) / 4; };

template <u32 BYTES> struct Unpack;
template <> struct Unpack<1> {
    template <typename T, u32 N> static HR_DEVICE T at(const u32 (&w)[N], u32 i) { return T(u8(w[i / 4] >> (8 * (i & 3)))); }
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

// The words of N rows from `row` on; what rows past `rows` get is of no meaning. `row < rows`
// must hold.
template <typename T, u32 N>
HR_DEVICE void load_words(u32 (&words)[Pack<T, N>::words], const void* column, u32 row, u32 rows)
{
    constexpr u64 alignment = Pack<T, N>::words * 4 < 16 ? Pack<T, N>::words * 4 : 16;
    const u64 address = reinterpret_cast<u64>(column) + u64(row) * sizeof(T);
    const u32 left = rows - row;
    if (left >= N && (address & (alignment - 1)) == 0) {
        stream_words(words, reinterpret_cast<const void*>(address));
    } else {
        careful_words(words, address, (left < N ? left : N) * u32(sizeof(T)));
    }
}

// The value of one row.
template <typename T>
HR_DEVICE T row_value(const void* column, u32 row)
{
    constexpr u32 words = (u32(sizeof(T)) + 3) / 4;
    const u64 address = reinterpret_cast<u64>(column) + u64(row) * sizeof(T);
    if ((address & (sizeof(T) - 1)) == 0) return *reinterpret_cast<const T*>(address);
    u32 pack[words];
    careful_words(pack, address, u32(sizeof(T)));
    return Unpack<sizeof(T)>::template at<T>(pack, 0);
}

// Values of N rows: the thread's, or one.
template <typename T, u32 N>
HR_DEVICE void load_rows(T (&out)[N], const void* column, u32 row, u32 rows)
{
    if constexpr (N == 1) {
        out[0] = row_value<T>(column, row);
    } else {
        u32 words[Pack<T, N>::words];
        load_words<T, N>(words, column, row, rows);
#pragma unroll
        for (u32 i = 0; i < N; ++i) out[i] = Unpack<sizeof(T)>::template at<T>(words, i);
    }
}

// Values of N rows as unsigned differences from a base. They stay packed until they are used:
// eight differences of one byte take two registers.
//
// Differences of three bytes lie in two planes, first the low 16 bits of all rows of the
// segment, then (from a multiple of 16 bytes on) their high 8 bits.
//
// Whoever makes them keeps planes aligned to 16 bytes and filled up to a multiple of 8 rows, so
// they are read as they lie.
template <u32 BYTES, u32 N> struct Deltas { u32 words[N * BYTES / 4]; };
template <u32 N> struct Deltas<3, N> { u32 low[N / 2]; u32 high[N / 4]; };
template <u32 BYTES> struct Deltas<BYTES, 1> { u32 value; };
template <> struct Deltas<3, 1> { u32 value; };

template <u32 BYTES> struct DeltaWord;
template <> struct DeltaWord<1> { typedef u8 type; };
template <> struct DeltaWord<2> { typedef u16 type; };
template <> struct DeltaWord<4> { typedef u32 type; };

// Where the second plane of three-byte differences begins.
HR_DEVICE u64 high_plane(u32 rows) { return (u64(rows) * 2 + 15) & ~u64(15); }

template <u32 BYTES, u32 N>
HR_DEVICE void load_deltas(Deltas<BYTES, N>& out, const void* column, u32 row, u32 rows)
{
    const u8* plane = static_cast<const u8*>(column);
    const u8* high = plane + high_plane(rows);
    if constexpr (BYTES == 3 && N == 1) {
        out.value = reinterpret_cast<const u16*>(plane)[row] | u32(high[row]) << 16;
    } else if constexpr (BYTES == 3) {
        stream_words(out.low, plane + u64(row) * 2);
        stream_words(out.high, high + row);
    } else if constexpr (N == 1) {
        out.value = reinterpret_cast<const typename DeltaWord<BYTES>::type*>(plane)[row];
    } else {
        stream_words(out.words, plane + u64(row) * BYTES);
    }
}

// As above, of differences that lie as in a file: one behind the other, from any address on. In registers they are as above.
template <u32 BYTES, u32 N>
HR_DEVICE void load_packed(Deltas<BYTES, N>& out, const void* column, u32 row, u32 rows)
{
    if constexpr (BYTES == 3 && N == 1) {
        const u8* at = static_cast<const u8*>(column) + u64(row) * 3;
        out.value = u32(at[0]) | u32(at[1]) << 8 | u32(at[2]) << 16;
    } else if constexpr (BYTES == 3) {
        constexpr u32 WORDS = N * 3 / 4, TOGETHER = WORDS % 2 == 0 ? 2 : 1;
        const u64 address = reinterpret_cast<u64>(column) + u64(row) * 3;
        const u32 left = rows - row;
        u32 words[WORDS];
        if (left >= N && (address & (TOGETHER * 4 - 1)) == 0) {
#pragma unroll
            for (u32 k = 0; k < WORDS; k += TOGETHER) {
                u32 part[TOGETHER];
                stream_words(part, reinterpret_cast<const void*>(address + k * 4));
#pragma unroll
                for (u32 i = 0; i < TOGETHER; ++i) words[k + i] = part[i];
            }
        } else {
            careful_words(words, address, (left < N ? left : N) * 3);
        }
#pragma unroll
        for (u32 k = 0; k < N / 4; ++k) {
            const u32 a = words[3 * k], b = words[3 * k + 1], c = words[3 * k + 2];
            out.low[2 * k] = byte_perm(a, b, 0x4310u);
            out.low[2 * k + 1] = byte_perm(b, c, 0x6532u);
            out.high[k] = byte_perm(byte_perm(a, b, 0x0052u), c, 0x7410u);
        }
    } else if constexpr (N == 1) {
        out.value = row_value<typename DeltaWord<BYTES>::type>(column, row);
    } else {
        load_words<typename DeltaWord<BYTES>::type, N>(out.words, column, row, rows);
    }
}

// 24 bits of row r: half of the word `low`, a byte of the word `high`.
HR_DEVICE u32 joined(u32 low, u32 high, u32 r)
{
    return byte_perm(low, high, 0x0010u + (r & 1u) * 0x22u + (0x400u + (r & 3u) * 0x100u)) & 0xffffffu;
}

template <u32 BYTES, u32 N> HR_DEVICE u32 delta(const Deltas<BYTES, N>& d, u32 r)
{
    if constexpr (N == 1) return d.value;
    else if constexpr (BYTES == 3) return joined(d.low[r / 2], d.high[r / 4], r);
    else return Unpack<BYTES>::template at<typename DeltaWord<BYTES>::type>(d.words, r);
}

// base + difference, modulo the width of T.
template <typename T, u32 BYTES, u32 N> HR_DEVICE T based(u64 base, const Deltas<BYTES, N>& d, u32 r)
{
    if constexpr (sizeof(T) <= 4) return T(u32(base) + delta(d, r));
    else if constexpr (sizeof(T) == 8) return T(base + delta(d, r));
    else return T(i64(base)) + T(delta(d, r));
}

// Forms of a column that lies differently in different segments: bytes of an unsigned
// difference, PACKED_DELTAS and those of one that lies as in a file, SIGNED_CODES and the bytes of a signed dictionary
// code or a narrow decimal, or PLAIN_VALUES.
constexpr u32 PLAIN_VALUES = 0, SIGNED_CODES = 16, PACKED_DELTAS = 32;

template <u32 BYTES, bool IS_PACKED, typename T, u32 N>
HR_DEVICE void spread_deltas(T (&out)[N], const void* column, u64 base, u32 row, u32 rows)
{
    Deltas<BYTES, N> deltas;
    if constexpr (IS_PACKED) load_packed(deltas, column, row, rows);
    else load_deltas(deltas, column, row, rows);
#pragma unroll
    for (u32 r = 0; r < N; ++r) out[r] = based<T>(base, deltas, r);
}
template <typename From, typename T, u32 N>
HR_DEVICE void spread_values(T (&out)[N], const void* column, u32 row, u32 rows)
{
    From values[N];
    load_rows(values, column, row, rows);
#pragma unroll
    for (u32 r = 0; r < N; ++r) out[r] = T(values[r]);
}
template <typename T, u32 N>
HR_DEVICE void load_varying(T (&out)[N], const void* column, u32 form, u64 base, u32 row, u32 rows)
{
    switch (form) {
    case 1: spread_deltas<1, false>(out, column, base, row, rows); break;
    case 2: spread_deltas<2, false>(out, column, base, row, rows); break;
    case 3: spread_deltas<3, false>(out, column, base, row, rows); break;
    case 4: spread_deltas<4, false>(out, column, base, row, rows); break;
    case SIGNED_CODES + 1: spread_values<i8>(out, column, row, rows); break;
    case SIGNED_CODES + 2: spread_values<i16>(out, column, row, rows); break;
    case SIGNED_CODES + 4: spread_values<i32>(out, column, row, rows); break;
    case SIGNED_CODES + 8: spread_values<i64>(out, column, row, rows); break;
    case PACKED_DELTAS + 1: spread_deltas<1, true>(out, column, base, row, rows); break;
    case PACKED_DELTAS + 2: spread_deltas<2, true>(out, column, base, row, rows); break;
    case PACKED_DELTAS + 3: spread_deltas<3, true>(out, column, base, row, rows); break;
    case PACKED_DELTAS + 4: spread_deltas<4, true>(out, column, base, row, rows); break;
    default: load_rows(out, column, row, rows);
    }
}

// Bits of a bitmap (validity, or booleans) of N rows from `row` on.
template <u32 N> HR_DEVICE u32 load_bits(const void* bitmap, u32 row)
{
    return stream_byte(static_cast<const u8*>(bitmap) + (row >> 3)) >> (row & 7u) & ((1u << N) - 1u);
}

// As above for validity; without a bitmap there are no NULLs.
template <u32 N> HR_DEVICE u32 load_validity(const void* bitmap, u32 row)
{
    return bitmap == nullptr ? (1u << N) - 1u : load_bits<N>(bitmap, row);
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
