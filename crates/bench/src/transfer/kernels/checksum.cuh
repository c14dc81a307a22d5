// The checksum of a chunk in device memory, and content to be written: see checksum.rs and
// write/content.rs, which say what they compute.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

// 2^64 divided by the golden ratio, odd.
#define HR_PLACE_FACTOR 0x9e3779b97f4a7c15ull

namespace hr {

// The two sums of some words.
struct Sums {
    u64 plain;
    u64 mixed;

    // Adds the word that has this number in its file.
    __device__ void add(u64 word, u64 number)
    {
        u64 x = word ^ ((number + 1) * HR_PLACE_FACTOR);
        plain += word;
        mixed += (x & 0xffffffffull) * (x >> 32);
    }
};

// The last `bytes` (1 to 7) bytes as a word, filled up with zeros.
__device__ inline u64 partial_word(const unsigned char* from, u32 bytes)
{
    u64 word = 0;
    for (u32 i = 0; i < bytes; ++i) {
        word |= (u64)from[i] << (8 * i);
    }
    return word;
}

} // namespace hr

// Adds the sums of `bytes` bytes to sums[0] and sums[1], which hold 0 or those of other parts.
// The bytes begin with word number `first_word` of their file; `data` is aligned to 8 bytes.
// Any grid of whole warps will do.
extern "C" __global__ void headrace_checksum(const u64* data, u64 bytes, u64 first_word, u64* sums)
{
    hr::Sums sum = {0, 0};
    u64 thread = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    u64 whole_words = bytes / 8;
    for (u64 i = thread; i < whole_words; i += gridDim.x * (u64)blockDim.x) {
        sum.add(data[i], first_word + i);
    }
    if (thread == 0 && bytes % 8 != 0) {
        const unsigned char* tail = (const unsigned char*)(data + whole_words);
        sum.add(hr::partial_word(tail, (u32)(bytes % 8)), first_word + whole_words);
    }
    for (u32 step = 16; step > 0; step /= 2) {
        sum.plain += __shfl_down_sync(0xffffffffu, sum.plain, step);
        sum.mixed += __shfl_down_sync(0xffffffffu, sum.mixed, step);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&sums[0], sum.plain);
        atomicAdd(&sums[1], sum.mixed);
    }
}

// Fills `words` words from `data` on with content: word number i is (i + 1) * HR_PLACE_FACTOR with
// its halves exchanged.
extern "C" __global__ void headrace_fill(u64* data, u64 words, u64 first_word)
{
    u64 thread = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    for (u64 i = thread; i < words; i += gridDim.x * (u64)blockDim.x) {
        u64 word = (first_word + i + 1) * HR_PLACE_FACTOR;
        data[i] = word << 32 | word >> 32;
    }
}
