// Texts of output rows, one behind the other, to pinned host memory: a warp takes a text.
#define BLOCK_THREADS 256
#define BLOCKS_PER_SM 1
#include "headrace/text.cuh"

struct Params {
    const hr::Text* texts;
    // Where each begins in `to`.
    const u64* offsets;
    u8* to;
    u64 rows;
};

HR_KERNEL headrace_gather(HR_CONSTANT Params p)
{
    const u64 step = u64(gridDim.x) * BLOCK_THREADS / HR_LANES;
    u64 row = (u64(blockIdx.x) * BLOCK_THREADS + threadIdx.x) / HR_LANES;
    for (; row < p.rows; row += step) {
        const hr::Text text = p.texts[row];
        u8* to = p.to + p.offsets[row];
        for (u32 byte = threadIdx.x % HR_LANES; byte < text.bytes; byte += HR_LANES) to[byte] = text.at[byte];
    }
}
