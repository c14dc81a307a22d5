// CUDA's names, for kernels whose threads are fibers on a core. What a kernel uses and is not here does not compile.
#pragma once
#include <math.h>

namespace emulated {
// Waits for all threads of the block that have not left.
void barrier(int line);
// Waits for all lanes of `mask`, each of which brings a value; answers with the values, by lane.
const unsigned long long* exchange(unsigned mask, unsigned long long value, int line);
[[noreturn]] void fail(const char* format, ...);

template <class T> T shuffle(unsigned mask, T value, int lane, int from, int width, int line) {
    unsigned long long bits = 0;
    static_assert(sizeof(T) <= sizeof bits);
    __builtin_memcpy(&bits, &value, sizeof value);
    const unsigned long long* const values = exchange(mask, bits, line);
    if (width < 1 || width > 32 || (width & (width - 1))) fail("line %d: a shuffle of width %d", line, width);
    // From outside of its part of the warp a lane gets what it brought.
    if (from < 0 || from / width != lane / width) return value;
    if (!(mask >> from & 1)) fail("line %d: a shuffle from lane %d, which is not in the mask", line, from);
    __builtin_memcpy(&value, &values[from], sizeof value);
    return value;
}

inline unsigned vote(unsigned mask, bool is_set, int line) {
    const unsigned long long* const values = exchange(mask, is_set, line);
    unsigned votes = 0;
    for (int lane = 0; lane < 32; lane++) votes |= (mask >> lane & 1) && values[lane] ? 1u << lane : 0;
    return votes;
}

template <class To, class From> To bits_of(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

// Keeps it from being deduced.
template <class T> struct As { typedef T type; };

struct Kernel {
    const char* name;
    unsigned long params_bytes;
    void (*call)(const void* params);
    // Its dynamic shared memory, of this thread of the machine.
    unsigned char* (*shared)();
};
template <auto> struct Call;
template <class P, void (*function)(P)> struct Call<function> {
    static constexpr unsigned long bytes = sizeof(P);
    static void call(const void* params) { function(*(const P*)params); }
};
extern const Kernel kernels[];
extern const unsigned long kernels_count;
}  // namespace emulated

constexpr unsigned long SHARED_BYTES = 64 << 10;
#define DYNAMIC_SHARED alignas(16) static thread_local unsigned char memory[SHARED_BYTES];
#define KERNEL(space, name)                                                                       \
    {#name, emulated::Call<space::name>::bytes, emulated::Call<space::name>::call,                \
     []() -> unsigned char* { return space::memory; }}

struct Index { unsigned x; };
extern thread_local Index threadIdx, blockIdx, blockDim, gridDim;
struct uint2 { alignas(8) unsigned x; unsigned y; };
struct uint4 { alignas(16) unsigned x; unsigned y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{x, y}; }

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// A block runs on one thread of the machine.
#define __shared__ thread_local

inline void __syncthreads(int line = __builtin_LINE()) { emulated::barrier(line); }
inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) { emulated::exchange(mask, 0, line); }
inline unsigned __ballot_sync(unsigned mask, bool is_set, int line = __builtin_LINE()) {
    return emulated::vote(mask, is_set, line);
}
inline bool __all_sync(unsigned mask, bool is_set, int line = __builtin_LINE()) {
    return emulated::vote(mask, is_set, line) == mask;
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, int line = __builtin_LINE()) {
    const int own = threadIdx.x % 32;
    return emulated::shuffle(mask, value, own, own / width * width + lane % width, width, line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned step, int width = 32, int line = __builtin_LINE()) {
    const int own = threadIdx.x % 32;
    return emulated::shuffle(mask, value, own, own - (int)step, width, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned step, int width = 32, int line = __builtin_LINE()) {
    const int own = threadIdx.x % 32;
    return emulated::shuffle(mask, value, own, own + (int)step, width, line);
}

template <class T> T atomicAdd(T* at, typename emulated::As<T>::type value) {
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
template <class T> T atomicExch(T* at, typename emulated::As<T>::type value) {
    return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);
}
template <class T> T atomicOr(T* at, typename emulated::As<T>::type value) {
    return __atomic_fetch_or(at, value, __ATOMIC_RELAXED);
}
template <class T> T atomicMin(T* at, typename emulated::As<T>::type value) {
    T found = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value < found && !__atomic_compare_exchange_n(at, &found, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return found;
}
template <class T> T __ldcs(const T* at) { return *at; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> shift % 32);
}
inline double __hiloint2double(int high, int low) {
    return emulated::bits_of<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __uint_as_float(unsigned bits) { return emulated::bits_of<float>(bits); }
inline int __float_as_int(float value) { return emulated::bits_of<int>(value); }
inline long long __double_as_longlong(double value) { return emulated::bits_of<long long>(value); }
