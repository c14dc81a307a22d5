// Pipeline over lineorder
//
//   probe part inner on lo_partkey = p_key -> p_brand1
//   probe supplier semi on lo_suppkey = s_key
//   probe date inner on lo_orderdate = d_datekey -> d_year
//   aggregate sum(lo_revenue) by d_year, p_brand1

#ifndef BLOCK_THREADS
#define BLOCK_THREADS 1024
#endif
#define BLOCKS_PER_SM 1
#define HR_ROWS 8u
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
    alignas(8) u32 first_place;
    alignas(8) u32 run_tiles;
    alignas(8) u32 part_base;
    alignas(8) u32 part_domain;
    const u32* part_present;
    alignas(8) u32 supplier_base;
    alignas(8) u32 supplier_domain;
    const u32* supplier_present;
    alignas(8) u32 date_base;
    alignas(8) u32 date_domain;
    const u8* date_d_year;
    i64 d_year_base;
    alignas(8) u32 group_stride;
    alignas(8) u32 part_base_1;
    const u8* part_p_brand1;
    i64 p_brand1_base;
    alignas(8) u32 block_count_0_at;
    alignas(8) u32 block_count_0_words;
    alignas(8) u32 block_sum_1_at;
    alignas(8) u32 block_sum_1_words;
    alignas(8) u32 shared_part_present_at;
    alignas(8) u32 shared_part_present_bytes;
    alignas(8) u32 shared_supplier_present_at;
    alignas(8) u32 shared_supplier_present_bytes;
    alignas(8) u32 first_group_0;
    alignas(8) u32 replica_mask;
    alignas(8) u32 groups;
    u64* count_0;
    u64* sum_1;
};

HR_KERNEL headrace_pipeline(HR_CONSTANT Params p) {
    HR_DYNAMIC_SHARED(shared_memory);
    u32* block_count_0 = reinterpret_cast<u32*>(shared_memory + p.block_count_0_at);
    hr::fill_shared<u32>(block_count_0, p.block_count_0_words, 0u);
    u32* block_sum_1 = reinterpret_cast<u32*>(shared_memory + p.block_sum_1_at);
    hr::fill_shared<u32>(block_sum_1, p.block_sum_1_words, 0u);
    u32* shared_part_present = reinterpret_cast<u32*>(shared_memory + p.shared_part_present_at);
    hr::copy_to_shared(shared_part_present, p.part_present, p.shared_part_present_bytes);
    u32* shared_supplier_present = reinterpret_cast<u32*>(shared_memory + p.shared_supplier_present_at);
    hr::copy_to_shared(shared_supplier_present, p.supplier_present, p.shared_supplier_present_bytes);
    const u32 first_group = p.first_group_0 + (threadIdx.x / 32u & p.replica_mask) * p.groups;
    __syncthreads();
    u32 s = 0;
    const u32 tiles = u32(p.tiles), stride = gridDim.x * p.run_tiles;
    for (u32 run = blockIdx.x * p.run_tiles; run < tiles; run += stride)
    for (u32 tile = run; tile < tiles && tile < run + p.run_tiles; ++tile) {
        while (tile >= p.segments[s].end_tile) ++s;
        const Segment& segment = p.segments[s];
        const u32 rows = u32(segment.row_count);
        const u32 row = (tile - u32(segment.first_tile)) * HR_TILE + threadIdx.x * HR_ROWS;
        u32 alive = hr::rows_alive(row, rows);
        if (alive == 0) continue;

        // probe part inner on lo_partkey = p_key -> p_brand1
        i32 lo_partkey[HR_ROWS];
        hr::load_rows(lo_partkey, segment.lo_partkey, row, rows);
        HR_EACH_ROW(r) {
            bool found = false;
            if (alive >> r & 1u) {
                const u32 slot = u32(i32(lo_partkey[r])) - p.part_base;
                found = slot < p.part_domain && hr::bit(shared_part_present, slot);
            }
            if (!found) alive &= ~(1u << r);
        }

        // probe supplier semi on lo_suppkey = s_key
        if (alive == 0) continue;
        i32 lo_suppkey[HR_ROWS];
        hr::load_rows(lo_suppkey, segment.lo_suppkey, row, rows);
        HR_EACH_ROW(r) {
            bool found = false;
            if (alive >> r & 1u) {
                const u32 slot = u32(i32(lo_suppkey[r])) - p.supplier_base;
                found = slot < p.supplier_domain && hr::bit(shared_supplier_present, slot);
            }
            if (!found) alive &= ~(1u << r);
        }

        // probe date inner on lo_orderdate = d_datekey -> d_year
        if (alive == 0) continue;
        i32 lo_orderdate[HR_ROWS];
        hr::load_rows(lo_orderdate, segment.lo_orderdate, row, rows);
        u8 d_year[HR_ROWS];
        HR_EACH_ROW(r) {
            d_year[r] = 0;
            bool found = false;
            if (alive >> r & 1u) {
                const u32 slot = u32(i32(lo_orderdate[r])) - p.date_base;
                if (slot < p.date_domain) {
                    const u32 hit = hr::entry(p.date_d_year, slot);
                    found = hit != 255u;
                    if (found) {
                        d_year[r] = hit;
                    }
                }
            }
            if (!found) alive &= ~(1u << r);
        }
        u32 group[HR_ROWS];
        HR_EACH_ROW(r) group[r] = first_group;
        HR_EACH_ROW(r) group[r] += u32(d_year[r]) * p.group_stride;

        // aggregate sum(lo_revenue) by d_year, p_brand1
        if (alive == 0) continue;
        u8 p_brand1[HR_ROWS];
        HR_EACH_ROW(r) {
            p_brand1[r] = 0;
            if (alive >> r & 1u) {
                const u32 slot = u32(i32(lo_partkey[r])) - p.part_base_1;
                p_brand1[r] = hr::entry(p.part_p_brand1, slot);
            }
        }
        HR_EACH_ROW(r) group[r] += u32(p_brand1[r]);
        i32 lo_revenue[HR_ROWS];
        hr::load_rows(lo_revenue, segment.lo_revenue, row, rows);
        HR_EACH_ROW(r) {
            if (alive >> r & 1u) {
                const u32 at = group[r];
                hr::mark(block_count_0 + at);
                hr::add_total<2>(block_sum_1 + 2 * at, i64(lo_revenue[r]));
            }
        }
    }

    // merge the block's accumulators
    __syncthreads();
    hr::flush_count(p.count_0, block_count_0, p.groups, p.replica_mask + 1u);
    hr::flush_total64(p.sum_1, block_sum_1, p.groups, p.replica_mask + 1u);
}
