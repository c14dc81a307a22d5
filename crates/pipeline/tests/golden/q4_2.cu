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
#define BLOCKS_PER_SM 1
#define HR_ROWS 8u
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
    alignas(8) u32 first_place;
    alignas(8) u32 run_tiles;
    alignas(8) u32 supplier_base;
    alignas(8) u32 supplier_domain;
    const u32* supplier_present;
    alignas(8) u32 date_base;
    alignas(8) u32 date_domain;
    const u32* date_present;
    alignas(8) u32 customer_base;
    alignas(8) u32 customer_domain;
    const u32* customer_present;
    alignas(8) u32 part_base;
    alignas(8) u32 part_domain;
    const u8* part_p_category;
    i64 p_category_base;
    alignas(8) u32 date_base_1;
    const u8* date_d_year;
    i64 d_year_base;
    alignas(8) u32 group_stride;
    alignas(8) u32 supplier_base_1;
    const u8* supplier_s_nation;
    i64 s_nation_base;
    alignas(8) u32 group_stride_1;
    alignas(8) u32 block_count_0_at;
    alignas(8) u32 block_count_0_words;
    alignas(8) u32 block_sum_1_at;
    alignas(8) u32 block_sum_1_words;
    alignas(8) u32 queue_at;
    alignas(8) u32 shared_supplier_present_at;
    alignas(8) u32 shared_supplier_present_bytes;
    alignas(8) u32 shared_date_present_at;
    alignas(8) u32 shared_date_present_bytes;
    alignas(8) u32 first_group_0;
    alignas(8) u32 replica_mask;
    alignas(8) u32 groups;
    u64* count_0;
    u64* sum_1;
};

HR_KERNEL headrace_pipeline(HR_CONSTANT Params p) {
    constexpr u32 ROWS = HR_ROWS;
    HR_DYNAMIC_SHARED(shared_memory);
    u32* block_count_0 = reinterpret_cast<u32*>(shared_memory + p.block_count_0_at);
    hr::fill_shared<u32>(block_count_0, p.block_count_0_words, 0u);
    u32* block_sum_1 = reinterpret_cast<u32*>(shared_memory + p.block_sum_1_at);
    hr::fill_shared<u32>(block_sum_1, p.block_sum_1_words, 0u);
    u16* queue = reinterpret_cast<u16*>(shared_memory + p.queue_at) + threadIdx.x / HR_LANES * HR_QUEUE;
    u32 queued = 0;
    u32* shared_supplier_present = reinterpret_cast<u32*>(shared_memory + p.shared_supplier_present_at);
    hr::copy_to_shared(shared_supplier_present, p.supplier_present, p.shared_supplier_present_bytes);
    u32* shared_date_present = reinterpret_cast<u32*>(shared_memory + p.shared_date_present_at);
    hr::copy_to_shared(shared_date_present, p.date_present, p.shared_date_present_bytes);
    const u32 first_group = p.first_group_0 + (threadIdx.x / 32u & p.replica_mask) * p.groups;
    __syncthreads();
    u32 s = 0;
    const u32 tiles = u32(p.tiles), stride = gridDim.x * p.run_tiles;
    for (u32 run = blockIdx.x * p.run_tiles; run < tiles; run += stride)
    for (u32 tile = run, run_end = hr::least(run + p.run_tiles, tiles); tile < run_end;) {
    while (tile >= p.segments[s].end_tile) ++s;
    const Segment segment = p.segments[s];
    const u32 rows = u32(segment.row_count);
    const u32 first = tile, end = hr::least(run_end, u32(segment.end_tile));
    const u32 first_row = (first - u32(segment.first_tile)) * HR_TILE;
    for (; tile < end; ++tile) {
        const u32 row = first_row + (tile - first) * HR_TILE + threadIdx.x * HR_ROWS;
        u32 alive = hr::rows_alive(row, rows);
        do {
            if (alive == 0) continue;

            // probe supplier inner on lo_suppkey = s_key -> s_nation
            i32 lo_suppkey[ROWS];
            hr::load_rows(lo_suppkey, segment.lo_suppkey, row, rows);
            i32 lo_orderdate[ROWS];
            hr::load_rows(lo_orderdate, segment.lo_orderdate, row, rows);
            u32 supplier_hits = 0;
            EACH_ROW(r) {
                const u32 slot = hr::least(u32(u32(i32(lo_suppkey[r])) - p.supplier_base), p.supplier_domain);
                supplier_hits = hr::push_bit(supplier_hits, hr::bit_first(shared_supplier_present, slot));
            }
            alive &= supplier_hits >> (32u - ROWS);

            // probe date inner on lo_orderdate = d_datekey -> d_year
            if (alive == 0) continue;
            u32 date_hits = 0;
            EACH_ROW(r) {
                const u32 slot = hr::least(u32(u32(i32(lo_orderdate[r])) - p.date_base), p.date_domain);
                date_hits = hr::push_bit(date_hits, hr::bit_first(shared_date_present, slot));
            }
            alive &= date_hits >> (32u - ROWS);

            // probe customer semi on lo_custkey = c_key
            if (alive == 0) continue;
            i32 lo_custkey[ROWS];
            hr::load_rows(lo_custkey, segment.lo_custkey, row, rows);
            u32 customer_hits = 0;
            EACH_ROW(r) {
                const u32 slot = alive >> r & 1u ? hr::least(u32(u32(i32(lo_custkey[r])) - p.customer_base), p.customer_domain) : p.customer_domain;
                customer_hits = hr::push_bit(customer_hits, hr::bit_first(p.customer_present, slot));
            }
            alive &= customer_hits >> (32u - ROWS);
        } while (false);

        // rows that are left, one by one
        queued = hr::enqueue(queue, queued, alive, tile - first);
        while (queued >= HR_LANES || (tile + 1 == end && queued != 0)) {
            constexpr u32 ROWS = 1;
            const u32 taken = hr::least(queued, HR_LANES);
            queued -= taken;
            const u32 row = hr::queued_row(queue[queued + hr::least(hr::lane(), taken - 1u)], first_row);
            u32 alive = hr::lane() < taken;
            __syncwarp();
            if (alive == 0) continue;
            i32 lo_partkey[ROWS];
            hr::load_rows(lo_partkey, segment.lo_partkey, row, rows);

            // probe part inner on lo_partkey = p_key -> p_category
            u8 p_category[ROWS];
            u32 part_hits = 0;
            EACH_ROW(r) {
                const u32 slot = alive >> r & 1u ? hr::least(u32(u32(i32(lo_partkey[r])) - p.part_base), p.part_domain) : p.part_domain;
                p_category[r] = hr::entry(p.part_p_category, slot);
                part_hits = hr::push_bit(part_hits, u32(p_category[r] != 255u));
            }
            alive &= part_hits >> (32u - ROWS);
            u32 group[ROWS];
            EACH_ROW(r) group[r] = first_group;
            EACH_ROW(r) group[r] += u32(p_category[r]);

            // aggregate sum(lo_revenue - lo_supplycost) by d_year, s_nation, p_category
            if (alive == 0) continue;
            i32 lo_revenue[ROWS];
            hr::load_rows(lo_revenue, segment.lo_revenue, row, rows);
            i32 lo_supplycost[ROWS];
            hr::load_rows(lo_supplycost, segment.lo_supplycost, row, rows);
            i32 lo_orderdate_1[ROWS];
            hr::load_rows(lo_orderdate_1, segment.lo_orderdate, row, rows);
            u8 d_year[ROWS];
            EACH_ROW(r) {
                d_year[r] = 0;
                if (alive >> r & 1u) {
                    const u32 slot = u32(i32(lo_orderdate_1[r])) - p.date_base_1;
                    d_year[r] = hr::entry(p.date_d_year, slot);
                }
            }
            EACH_ROW(r) group[r] += u32(d_year[r]) * p.group_stride;
            i32 lo_suppkey_1[ROWS];
            hr::load_rows(lo_suppkey_1, segment.lo_suppkey, row, rows);
            u8 s_nation[ROWS];
            EACH_ROW(r) {
                s_nation[r] = 0;
                if (alive >> r & 1u) {
                    const u32 slot = u32(i32(lo_suppkey_1[r])) - p.supplier_base_1;
                    s_nation[r] = hr::entry(p.supplier_s_nation, slot);
                }
            }
            EACH_ROW(r) group[r] += u32(s_nation[r]) * p.group_stride_1;
            EACH_ROW(r) {
                if (alive >> r & 1u) {
                    const u32 at = group[r];
                    hr::mark(block_count_0 + at);
                    hr::add_total<2>(block_sum_1 + 2 * at, i64((lo_revenue[r] - lo_supplycost[r])));
                }
            }
        }
    }}

    // merge the block's accumulators
    __syncthreads();
    hr::flush_count(p.count_0, block_count_0, p.groups, p.replica_mask + 1u);
    hr::flush_total64(p.sum_1, block_sum_1, p.groups, p.replica_mask + 1u);
}
