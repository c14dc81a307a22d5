// Words shared by every kernel: fixed-width types and the few device intrinsics that the
// generated code rests on. NVRTC has no <cstdint>, so the types are spelled here.
#pragma once

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef __int128 i128;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned __int128 u128;
typedef float f32;
typedef double f64;

#ifdef HEADRACE_HOST_SHIM
#include "headrace/host_shim.h"
#else
#define HR_LANES 32u
#define HR_DEVICE __device__ __forceinline__
#define HR_KERNEL extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS_PER_SM)
#define HR_CONSTANT const __grid_constant__
#define HR_DYNAMIC_SHARED(name) extern __shared__ __align__(16) u8 name[]
#endif

// Rows that one thread handles at a time (4 or 8), all of them as bits, those of a warp, and rows
// of a tile.
#ifndef HR_ROWS
#define HR_ROWS 4u
#endif
#define HR_ALL_ROWS ((1u << HR_ROWS) - 1u)
#define HR_WARP_ROWS (HR_LANES * HR_ROWS)
#define HR_TILE (BLOCK_THREADS * HR_ROWS)

// The thread's rows, unrolled.
#define HR_EACH_ROW(r) _Pragma("unroll") for (u32 r = 0; r < HR_ROWS; ++r)
// The same in generated code, where ROWS is 1 once rows are taken one by one.
#define EACH_ROW(r) _Pragma("unroll") for (u32 r = 0; r < ROWS; ++r)

namespace hr {

// Reinterprets the bits of a value.
template <typename To, typename From>
HR_DEVICE To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From), "same width");
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}

template <typename T> struct Limits;
template <> struct Limits<i8> { static constexpr i64 min = -128, max = 127; };
template <> struct Limits<i16> { static constexpr i64 min = -32768, max = 32767; };
template <> struct Limits<i32> { static constexpr i64 min = -2147483648ll, max = 2147483647ll; };
template <> struct Limits<i64> { static constexpr i64 min = -9223372036854775807ll - 1, max = 9223372036854775807ll; };
template <> struct Limits<i128> { static constexpr i128 max = i128(~u128(0) >> 1), min = -max - 1; };
template <> struct Limits<u8> { static constexpr u64 min = 0, max = 255; };
template <> struct Limits<u16> { static constexpr u64 min = 0, max = 65535; };
template <> struct Limits<u32> { static constexpr u64 min = 0, max = 4294967295ull; };
template <> struct Limits<u64> { static constexpr u64 min = 0, max = ~0ull; };

// Records the first failure of a launch. `place` counts from 1; 0 means none.
HR_DEVICE void raise(u32* error, u32 place)
{
    atomicCAS(error, 0u, place);
}

// Which of the thread's rows, from `row` on, exist: bit r for row r.
HR_DEVICE u32 rows_alive(u32 row, u32 rows)
{
    if (row >= rows) return 0;
    const u32 left = rows - row;
    return left >= HR_ROWS ? HR_ALL_ROWS : (1u << left) - 1u;
}

HR_DEVICE u32 lane() { return threadIdx.x & (HR_LANES - 1u); }

} // namespace hr
