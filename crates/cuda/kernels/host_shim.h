// What the kernels need of CUDA, for a C++ compiler on the host: a grid of blocks of one
// thread each, all at the same time. A warp is one lane then.
// Tests run generated kernels this way where there is no GPU.
#pragma once
#include <cmath>
#include <cstring>

#define HR_DEVICE inline
#define HR_LANES 1u
#define HR_KERNEL static void
#define HR_CONSTANT const
#define HR_DYNAMIC_SHARED(name) u8* name = hr_shared_memory
#define __device__
#define __constant__ static const

struct Dimension { unsigned x; };
static Dimension gridDim = {1};
static thread_local Dimension threadIdx = {0}, blockIdx = {0};
static thread_local u8* hr_shared_memory;

// Replaces a value by what follows from it, at once.
template <typename T, typename F> inline T hr_replace(T* to, F next)
{
    T old, value;
    __atomic_load(to, &old, __ATOMIC_RELAXED);
    do value = next(old); while (!__atomic_compare_exchange(to, &old, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return old;
}
template <typename T, typename U> inline T atomicAdd(T* to, U value) { return hr_replace(to, [=](T old) { return T(old + value); }); }
template <typename T> inline T atomicMin(T* to, T value) { return hr_replace(to, [=](T old) { return value < old ? value : old; }); }
template <typename T> inline T atomicMax(T* to, T value) { return hr_replace(to, [=](T old) { return value > old ? value : old; }); }
inline u32 atomicOr(u32* to, u32 value) { return hr_replace(to, [=](u32 old) { return old | value; }); }
template <typename T, typename U> inline T atomicCAS(T* to, T expected, U value)
{
    T next = value;
    __atomic_compare_exchange(to, &expected, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

inline void __syncthreads() {}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __syncwarp(u32 = 1) {}
inline u32 __activemask() { return 1; }
inline u32 __ballot_sync(u32, u32 predicate) { return predicate != 0; }
inline u32 __popc(u32 value) { return u32(__builtin_popcount(value)); }
inline u32 __ffs(u32 value) { return u32(__builtin_ffs(int(value))); }
inline u32 __reduce_or_sync(u32, u32 value) { return value; }
inline u32 __reduce_min_sync(u32, u32 value) { return value; }
template <typename T> inline T __shfl_sync(u32, T value, u32) { return value; }
template <typename T> inline T __shfl_xor_sync(u32, T value, u32) { return value; }

namespace hr {
template <u32 WORDS> inline void stream_words(u32 (&out)[WORDS], const void* from) { memcpy(out, from, sizeof(out)); }
inline u32 stream_byte(const void* from) { return *static_cast<const u8*>(from); }
inline u32 byte_perm(u32 low, u32 high, u32 selector)
{
    const u64 bytes = u64(high) << 32 | low;
    u32 out = 0;
    for (u32 i = 0; i < 4; ++i) out |= u32(u8(bytes >> (8 * (selector >> (4 * i) & 7u)))) << (8 * i);
    return out;
}
inline u32 funnel_right(u32 low, u32 high, u32 shift)
{
    return u32((u64(high) << 32 | low) >> (shift & 31u));
}
}
