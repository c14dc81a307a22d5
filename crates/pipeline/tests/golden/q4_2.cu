// Pipeline over lineorder
//
//   probe supplier inner on lo_suppkey = s_key -> s_nation
//   probe date inner on lo_orderdate = d_datekey -> d_year
//   probe customer semi on lo_custkey = c_key
//   probe part inner on lo_partkey = p_key -> p_category
//   aggregate sum(lo_revenue - lo_supplycost) by d_year, s_nation, p_category

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
    const void* lo_suppkey;
    const void* lo_orderdate;
    const void* lo_custkey;
    const void* lo_partkey;
    const void* lo_revenue;
    const void* lo_supplycost;
};

struct Params {
    const Segment* segments;
    u64 tiles;
    u32* error;
    const u32* supplier_present;
    const u8* supplier_s_nation;
    const u32* date_present;
    const u8* date_d_year;
    const u32* customer_present;
    const u8* part_p_category;
    u64* count_0;
    u64* sum_1;
};

HR_KERNEL headrace_pipeline(HR_CONSTANT Params p) {
    HR_DYNAMIC_SHARED(shared_memory);
    u32* block_count_0 = reinterpret_cast<u32*>(shared_memory + 0);
    hr::fill_shared<u32>(block_count_0, 800u, 0u);
    u32* block_sum_1 = reinterpret_cast<u32*>(shared_memory + 3200);
    hr::fill_shared<u32>(block_sum_1, 1600u, 0u);
    u32* shared_supplier_present = reinterpret_cast<u32*>(shared_memory + 9600);
    hr::copy_to_shared(shared_supplier_present, p.supplier_present, 25008u);
    u32* shared_date_present = reinterpret_cast<u32*>(shared_memory + 34608);
    hr::copy_to_shared(shared_date_present, p.date_present, 7648u);
    const u32 replica = threadIdx.x / 32u % 8u * 100u;
    __syncthreads();
    u32 s = 0;
    for (u32 tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        while (tile >= p.segments[s].end_tile) ++s;
        const Segment& segment = p.segments[s];
        const u32 rows = u32(segment.row_count);
        const u32 row = (tile - u32(segment.first_tile)) * HR_TILE + threadIdx.x * HR_ROWS;
        u32 alive = hr::rows_alive(row, rows);
        if (alive == 0) continue;

        // probe supplier inner on lo_suppkey = s_key -> s_nation
        i32 lo_suppkey[HR_ROWS];
        hr::load4(lo_suppkey, segment.lo_suppkey, row, rows);
        u8 s_nation[HR_ROWS];
        HR_EACH_ROW(r) {
            s_nation[r] = 0;
            bool found = false;
            if (alive >> r & 1u) {
                const u32 slot = u32(i32(lo_suppkey[r])) - 1u;
                found = slot < 200000u && hr::bit(shared_supplier_present, slot);
                if (found) {
                    s_nation[r] = hr::entry(p.supplier_s_nation, slot);
                }
            }
            if (!found) alive &= ~(1u << r);
        }
        u32 group[HR_ROWS] = {0, 0, 0, 0};
        HR_EACH_ROW(r) group[r] += u32(s_nation[r]) * 10u;

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
                found = slot < 61131u && hr::bit(shared_date_present, slot);
                if (found) {
                    d_year[r] = hr::entry(p.date_d_year, slot);
                }
            }
            if (!found) alive &= ~(1u << r);
        }
        HR_EACH_ROW(r) group[r] += u32(d_year[r]) * 50u;

        // probe customer semi on lo_custkey = c_key
        if (alive == 0) continue;
        i32 lo_custkey[HR_ROWS];
        hr::load4(lo_custkey, segment.lo_custkey, row, rows);
        HR_EACH_ROW(r) {
            bool found = false;
            if (alive >> r & 1u) {
                const u32 slot = u32(i32(lo_custkey[r])) - 1u;
                found = slot < 3000000u && hr::bit(p.customer_present, slot);
            }
            if (!found) alive &= ~(1u << r);
        }

        // probe part inner on lo_partkey = p_key -> p_category
        if (alive == 0) continue;
        i32 lo_partkey[HR_ROWS];
        hr::load4(lo_partkey, segment.lo_partkey, row, rows);
        u8 p_category[HR_ROWS];
        HR_EACH_ROW(r) {
            p_category[r] = 0;
            bool found = false;
            if (alive >> r & 1u) {
                const u32 slot = u32(i32(lo_partkey[r])) - 1u;
                if (slot < 1400000u) {
                    const u32 hit = hr::entry(p.part_p_category, slot);
                    found = hit != 255u;
                    if (found) {
                        p_category[r] = hit;
                    }
                }
            }
            if (!found) alive &= ~(1u << r);
        }
        HR_EACH_ROW(r) group[r] += u32(p_category[r]);

        // aggregate sum(lo_revenue - lo_supplycost) by d_year, s_nation, p_category
        if (alive == 0) continue;
        i32 lo_revenue[HR_ROWS];
        hr::load4(lo_revenue, segment.lo_revenue, row, rows);
        i32 lo_supplycost[HR_ROWS];
        hr::load4(lo_supplycost, segment.lo_supplycost, row, rows);
        HR_EACH_ROW(r) {
            if (alive >> r & 1u) {
                const u32 at = replica + group[r];
                hr::mark(block_count_0 + at);
                hr::add_total<2>(block_sum_1 + 2 * at, i64((lo_revenue[r] - lo_supplycost[r])));
            }
        }
    }

    // merge the block's accumulators
    __syncthreads();
    hr::flush_count(p.count_0, block_count_0, 100u, 8u);
    hr::flush_total64(p.sum_1, block_sum_1, 100u, 8u);
}
