// Re-encoding of a plain column as unsigned differences from a base, for columns that stay on
// the device. Every value that is not NULL is checked: one that does not fit is told, and the
// result must not be used then.
#ifndef BLOCK_THREADS
#define BLOCK_THREADS 256
#endif
#define BLOCKS_PER_SM 1
#define HR_ROWS 8u
#include "headrace/types.cuh"
#include "headrace/load.cuh"

struct Params {
    const void* values;
    const void* validity;
    void* deltas;
    u32* misfit;
    u64 base;
    alignas(8) u32 rows;
    // Bytes of a value; 16 more for unsigned ones.
    alignas(8) u32 values_form;
    alignas(8) u32 delta_bytes;
};

template <typename T>
HR_DEVICE void load_wide(u64 (&out)[HR_ROWS], const void* column, u32 row, u32 rows)
{
    T values[HR_ROWS];
    hr::load_rows(values, column, row, rows);
    HR_EACH_ROW(r) out[r] = u64(i64(values[r]));
}

// Writes one plane: HR_ROWS entries of BYTES bytes, from bit `shift` of each difference on.
template <u32 BYTES>
HR_DEVICE void store_plane(void* plane, const u64 (&deltas)[HR_ROWS], u32 shift, u32 row)
{
    struct alignas(8) Words { u32 word[HR_ROWS * BYTES / 4]; } words = {};
    HR_EACH_ROW(r) {
        const u64 entry = (deltas[r] >> shift) & ((u64(1) << 8 * BYTES) - 1);
        words.word[r * BYTES / 4] |= u32(entry) << (r * BYTES % 4 * 8);
    }
    static_cast<Words*>(plane)[row / HR_ROWS] = words;
}

HR_KERNEL headrace_narrow(HR_CONSTANT Params p)
{
    const u64 largest = (u64(1) << 8 * p.delta_bytes) - 1;
    const u32 step = gridDim.x * HR_TILE;
    for (u64 first = (u64(blockIdx.x) * BLOCK_THREADS + threadIdx.x) * HR_ROWS; first < p.rows; first += step) {
        const u32 row = u32(first);
        const u32 there = hr::rows_alive(row, p.rows) & hr::load_validity<HR_ROWS>(p.validity, row);
        u64 deltas[HR_ROWS];
        switch (p.values_form) {
        case 2: load_wide<i16>(deltas, p.values, row, p.rows); break;
        case 4: load_wide<i32>(deltas, p.values, row, p.rows); break;
        case 8: load_wide<i64>(deltas, p.values, row, p.rows); break;
        case 16 + 2: load_wide<u16>(deltas, p.values, row, p.rows); break;
        default: load_wide<u32>(deltas, p.values, row, p.rows);
        }
        bool fits = true;
        HR_EACH_ROW(r) {
            deltas[r] -= p.base;
            const bool is_there = there >> r & 1u;
            fits &= !is_there || deltas[r] <= largest;
            if (!is_there) deltas[r] = 0;
        }
        if (!fits) atomicOr(p.misfit, 1u);
        switch (p.delta_bytes) {
        case 1: store_plane<1>(p.deltas, deltas, 0, row); break;
        case 2: store_plane<2>(p.deltas, deltas, 0, row); break;
        case 3:
            store_plane<2>(p.deltas, deltas, 0, row);
            store_plane<1>(static_cast<u8*>(p.deltas) + hr::high_plane(p.rows), deltas, 16, row);
            break;
        default: store_plane<4>(p.deltas, deltas, 0, row);
        }
    }
}
