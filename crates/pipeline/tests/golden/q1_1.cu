// Pipeline over lineorder
//
//   probe date semi on lo_orderdate = d_datekey
//   filter lo_discount >= 1
//   filter lo_discount <= 3
//   filter lo_quantity >= 0
//   filter lo_quantity <= 24
//   aggregate sum(lo_extendedprice * lo_discount)

#ifndef BLOCK_THREADS
#define BLOCK_THREADS 1024
#endif
#define BLOCKS_PER_SM 2
#include "headrace/pipeline.cuh"

// One row range of the table and where its columns lie.
struct Segment {
    u64 row_count;
    u64 first_tile;
    u64 end_tile;
    const void* lo_orderdate;
    const void* lo_discount;
    const void* lo_quantity;
    const void* lo_extendedprice;
};

struct Params {
    const Segment* segments;
    u64 tiles;
    u32* error;
    const u32* date_present;
    u64* count_0;
    u64* sum_1;
};

HR_KERNEL headrace_pipeline(HR_CONSTANT Params p) {
    HR_DYNAMIC_SHARED(shared_memory);
    u32* block_count_0 = reinterpret_cast<u32*>(shared_memory + 0);
    hr::fill_shared<u32>(block_count_0, 4u, 0u);
    u32* block_sum_1 = reinterpret_cast<u32*>(shared_memory + 16);
    hr::fill_shared<u32>(block_sum_1, 4u, 0u);
    u32* shared_date_present = reinterpret_cast<u32*>(shared_memory + 32);
    hr::copy_to_shared(shared_date_present, p.date_present, 7648u);
    u32 my_count_0 = 0;
    i64 my_sum_1 = 0;
    __syncthreads();
    u32 s = 0;
    for (u32 tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        while (tile >= p.segments[s].end_tile) ++s;
        const Segment& segment = p.segments[s];
        const u32 rows = u32(segment.row_count);
        const u32 row = (tile - u32(segment.first_tile)) * HR_TILE + threadIdx.x * HR_ROWS;
        u32 alive = hr::rows_alive(row, rows);
        if (alive == 0) continue;

        // probe date semi on lo_orderdate = d_datekey
        i32 lo_orderdate[HR_ROWS];
        hr::load4(lo_orderdate, segment.lo_orderdate, row, rows);
        HR_EACH_ROW(r) {
            bool found = false;
            if (alive >> r & 1u) {
                const u32 slot = u32(i32(lo_orderdate[r])) - 19920101u;
                found = slot < 61131u && hr::bit(shared_date_present, slot);
            }
            if (!found) alive &= ~(1u << r);
        }

        // filter lo_discount >= 1
        if (alive == 0) continue;
        i32 lo_discount[HR_ROWS];
        hr::load4(lo_discount, segment.lo_discount, row, rows);
        HR_EACH_ROW(r) {
            if (!(lo_discount[r] >= 1)) alive &= ~(1u << r);
        }

        // filter lo_discount <= 3
        HR_EACH_ROW(r) {
            if (!(lo_discount[r] <= 3)) alive &= ~(1u << r);
        }

        // filter lo_quantity >= 0
        if (alive == 0) continue;
        i32 lo_quantity[HR_ROWS];
        hr::load4(lo_quantity, segment.lo_quantity, row, rows);
        HR_EACH_ROW(r) {
            if (!(lo_quantity[r] >= 0)) alive &= ~(1u << r);
        }

        // filter lo_quantity <= 24
        HR_EACH_ROW(r) {
            if (!(lo_quantity[r] <= 24)) alive &= ~(1u << r);
        }

        // aggregate sum(lo_extendedprice * lo_discount)
        if (alive == 0) continue;
        i32 lo_extendedprice[HR_ROWS];
        hr::load4(lo_extendedprice, segment.lo_extendedprice, row, rows);
        my_count_0 += __popc(alive);
        HR_EACH_ROW(r) {
            if (alive >> r & 1u) {
                my_sum_1 += i64((lo_extendedprice[r] * lo_discount[r]));
            }
        }
    }

    // merge the block's accumulators
    my_count_0 = hr::warp_sum(my_count_0);
    if (hr::first_lane()) atomicAdd(block_count_0, my_count_0);
    my_sum_1 = hr::warp_sum(my_sum_1);
    if (hr::first_lane()) hr::add_total<2>(block_sum_1, my_sum_1);
    __syncthreads();
    hr::flush_count(p.count_0, block_count_0, 1u, 1u);
    hr::flush_total64(p.sum_1, block_sum_1, 1u, 1u);
}
