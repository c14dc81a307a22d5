// Copies words of pinned host memory, which is read over the link.
#define BLOCK_THREADS 256
#define BLOCKS_PER_SM 1
#include "headrace/types.cuh"

struct Params {
    const u64* from;
    u64* to;
    u64 words;
};

HR_KERNEL headrace_upload(HR_CONSTANT Params p)
{
    const u64 step = u64(gridDim.x) * BLOCK_THREADS;
    for (u64 word = u64(blockIdx.x) * BLOCK_THREADS + threadIdx.x; word < p.words; word += step) {
        p.to[word] = p.from[word];
    }
}
