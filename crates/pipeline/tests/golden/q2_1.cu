// Pipeline over lineorder
//
//   probe part inner on lo_partkey = p_key -> p_brand1
//   probe supplier semi on lo_suppkey = s_key
//   probe date inner on lo_orderdate = d_datekey -> d_year
//   aggregate sum(lo_revenue) by d_year, p_brand1

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
    const void* lo_partkey;
    const void* lo_suppkey;
    const void* lo_orderdate;
    const void* lo_revenue;
};

struct Params {
    const Segment* segments;
    u64 tiles;
    u32* error;
    const u8* part_p_brand1;
    const u32* supplier_present;
    const u8* date_d_year;
    u64* count_0;
    u64* sum_1;
};

HR_KERNEL headrace_pipeline(HR_CONSTANT Params p) {
    HR_DYNAMIC_SHARED(shared_memory);
    u32* block_count_0 = reinterpret_cast<u32*>(shared_memory + 0);
    hr::fill_shared<u32>(block_count_0, 1120u, 0u);
    u32* block_sum_1 = reinterpret_cast<u32*>(shared_memory + 4480);
    hr::fill_shared<u32>(block_sum_1, 2240u, 0u);
    u32* shared_supplier_present = reinterpret_cast<u32*>(shared_memory + 13440);
    hr::copy_to_shared(shared_supplier_present, p.supplier_present, 25008u);
    const u32 replica = threadIdx.x / 32u % 4u * 280u;
    __syncthreads();
    u32 s = 0;
    for (u32 tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        while (tile >= p.segments[s].end_tile) ++s;
        const Segment& segment = p.segments[s];
        const u32 rows = u32(segment.row_count);
        const u32 row = (tile - u32(segment.first_tile)) * HR_TILE + threadIdx.x * HR_ROWS;
        u32 alive = hr::rows_alive(row, rows);
        if (alive == 0) continue;

        // probe part inner on lo_partkey = p_key -> p_brand1
        i32 lo_partkey[HR_ROWS];
        hr::load4(lo_partkey, segment.lo_partkey, row, rows);
        u8 p_brand1[HR_ROWS];
        HR_EACH_ROW(r) {
            p_brand1[r] = 0;
            bool found = false;
            if (alive >> r & 1u) {
                const u32 slot = u32(i32(lo_partkey[r])) - 1u;
                if (slot < 1400000u) {
                    const u32 hit = hr::entry(p.part_p_brand1, slot);
                    found = hit != 255u;
                    if (found) {
                        p_brand1[r] = hit;
                    }
                }
            }
            if (!found) alive &= ~(1u << r);
        }
        u32 group[HR_ROWS] = {0, 0, 0, 0};
        HR_EACH_ROW(r) group[r] += u32(p_brand1[r]);

        // probe supplier semi on lo_suppkey = s_key
        if (alive == 0) continue;
        i32 lo_suppkey[HR_ROWS];
        hr::load4(lo_suppkey, segment.lo_suppkey, row, rows);
        HR_EACH_ROW(r) {
            bool found = false;
            if (alive >> r & 1u) {
                const u32 slot = u32(i32(lo_suppkey[r])) - 1u;
                found = slot < 200000u && hr::bit(shared_supplier_present, slot);
            }
            if (!found) alive &= ~(1u << r);
        }

        // probe date inner on lo_orderdate = d_datekey -> d_year
        if (alive == 0) continue;
        i32 lo_orderdate[HR_ROWS];
        hr::load4(lo_orderdate, segment.lo_orderdate, row, rows);
        u8 d_year[HR_ROWS];
        HR_EACH_ROW(r) {
            d_year[r] = 0;
            bool found = false;
            if (alive >> r & 1u) {
                const u32 slot = u32(i32(lo_orderdate[r])) - 19920101u;
                if (slot < 61131u) {
                    const u32 hit = hr::entry(p.date_d_year, slot);
                    found = hit != 255u;
                    if (found) {
                        d_year[r] = hit;
                    }
                }
            }
            if (!found) alive &= ~(1u << r);
        }
        HR_EACH_ROW(r) group[r] += u32(d_year[r]) * 40u;

        // aggregate sum(lo_revenue) by d_year, p_brand1
        if (alive == 0) continue;
        i32 lo_revenue[HR_ROWS];
        hr::load4(lo_revenue, segment.lo_revenue, row, rows);
        HR_EACH_ROW(r) {
            if (alive >> r & 1u) {
                const u32 at = replica + group[r];
                hr::mark(block_count_0 + at);
                hr::add_total<2>(block_sum_1 + 2 * at, i64(lo_revenue[r]));
            }
        }
    }

    // merge the block's accumulators
    __syncthreads();
    hr::flush_count(p.count_0, block_count_0, 280u, 4u);
    hr::flush_total64(p.sum_1, block_sum_1, 280u, 4u);
}
