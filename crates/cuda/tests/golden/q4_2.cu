// The pipeline:
//   probe inner on column2 -> computed6
//   probe inner on column0 -> computed7
//   probe semi on column1
//   probe inner on column3 -> computed8
//   aggregate sum(column4 - column5) by computed7, computed6, computed8

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
    const void* column2;
    const void* column0;
    const void* column1;
    const void* column3;
    const void* column4;
    const void* column5;
};

struct Params {
    const Segment* segments;
    u64 tiles;
    u32* error;
    alignas(8) u32 first_place;
    alignas(8) u32 run_tiles;
    alignas(8) u32 build_base;
    alignas(8) u32 build_domain;
    const u32* present;
    alignas(8) u32 build_base_1;
    alignas(8) u32 build_domain_1;
    const u32* present_1;
    alignas(8) u32 build_base_2;
    alignas(8) u32 build_domain_2;
    const u32* present_2;
    alignas(8) u32 build_base_3;
    alignas(8) u32 build_domain_3;
    const u8* payload;
    i64 computed8_base;
    alignas(8) u32 build_base_4;
    const u8* payload_1;
    i64 computed7_base;
    alignas(8) u32 group_stride;
    alignas(8) u32 build_base_5;
    const u8* payload_2;
    i64 computed6_base;
    alignas(8) u32 group_stride_1;
    u64* left_0;
    u64* left_1;
    u64* left_2;
    u64* left_3;
    alignas(8) u32 block_count_0_at;
    alignas(8) u32 block_count_0_words;
    alignas(8) u32 block_sum_1_at;
    alignas(8) u32 block_sum_1_words;
    alignas(8) u32 queue_at;
    alignas(8) u32 shared_present_at;
    alignas(8) u32 shared_present_bytes;
    alignas(8) u32 shared_present_1_at;
    alignas(8) u32 shared_present_1_bytes;
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
    u32* shared_present = reinterpret_cast<u32*>(shared_memory + p.shared_present_at);
    hr::copy_to_shared(shared_present, p.present, p.shared_present_bytes);
    u32* shared_present_1 = reinterpret_cast<u32*>(shared_memory + p.shared_present_1_at);
    hr::copy_to_shared(shared_present_1, p.present_1, p.shared_present_1_bytes);
    const u32 first_group = p.first_group_0 + (threadIdx.x / 32u & p.replica_mask) * p.groups;
    __syncthreads();
    u32 left_0 = 0;
    u32 left_1 = 0;
    u32 left_2 = 0;
    u32 left_3 = 0;
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

            // probe inner on column2 -> computed6
            i32 column2[ROWS];
            hr::load_rows(column2, segment.column2, row, rows);
            i32 column0[ROWS];
            hr::load_rows(column0, segment.column0, row, rows);
            u32 hits_0 = 0;
            EACH_ROW(r) {
                const u32 slot = hr::least(u32(u32(i32(column2[r])) - p.build_base), p.build_domain);
                hits_0 = hr::push_bit(hits_0, hr::bit_first(shared_present, slot));
            }
            alive &= hits_0 >> (32u - ROWS);
            left_0 += __popc(alive);

            // probe inner on column0 -> computed7
            if (alive == 0) continue;
            u32 hits_1 = 0;
            EACH_ROW(r) {
                const u32 slot = hr::least(u32(u32(i32(column0[r])) - p.build_base_1), p.build_domain_1);
                hits_1 = hr::push_bit(hits_1, hr::bit_first(shared_present_1, slot));
            }
            alive &= hits_1 >> (32u - ROWS);
            left_1 += __popc(alive);

            // probe semi on column1
            if (alive == 0) continue;
            i32 column1[ROWS];
            hr::load_rows(column1, segment.column1, row, rows);
            u32 hits_2 = 0;
            EACH_ROW(r) {
                const u32 slot = alive >> r & 1u ? hr::least(u32(u32(i32(column1[r])) - p.build_base_2), p.build_domain_2) : p.build_domain_2;
                hits_2 = hr::push_bit(hits_2, hr::bit_first(p.present_2, slot));
            }
            alive &= hits_2 >> (32u - ROWS);
            left_2 += __popc(alive);
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
            i32 column3[ROWS];
            hr::load_rows(column3, segment.column3, row, rows);

            // probe inner on column3 -> computed8
            u8 computed8[ROWS];
            u32 hits_3 = 0;
            EACH_ROW(r) {
                const u32 slot = alive >> r & 1u ? hr::least(u32(u32(i32(column3[r])) - p.build_base_3), p.build_domain_3) : p.build_domain_3;
                computed8[r] = hr::entry(p.payload, slot);
                hits_3 = hr::push_bit(hits_3, u32(computed8[r] != 255u));
            }
            alive &= hits_3 >> (32u - ROWS);
            u32 group[ROWS];
            EACH_ROW(r) group[r] = first_group;
            EACH_ROW(r) group[r] += u32(computed8[r]);
            left_3 += __popc(alive);

            // aggregate sum(column4 - column5) by computed7, computed6, computed8
            if (alive == 0) continue;
            i32 column4[ROWS];
            hr::load_rows(column4, segment.column4, row, rows);
            i32 column5[ROWS];
            hr::load_rows(column5, segment.column5, row, rows);
            i32 column0_1[ROWS];
            hr::load_rows(column0_1, segment.column0, row, rows);
            u8 computed7[ROWS];
            EACH_ROW(r) {
                computed7[r] = 0;
                if (alive >> r & 1u) {
                    const u32 slot = u32(i32(column0_1[r])) - p.build_base_4;
                    computed7[r] = hr::entry(p.payload_1, slot);
                }
            }
            EACH_ROW(r) group[r] += u32(computed7[r]) * p.group_stride;
            i32 column2_1[ROWS];
            hr::load_rows(column2_1, segment.column2, row, rows);
            u8 computed6[ROWS];
            EACH_ROW(r) {
                computed6[r] = 0;
                if (alive >> r & 1u) {
                    const u32 slot = u32(i32(column2_1[r])) - p.build_base_5;
                    computed6[r] = hr::entry(p.payload_2, slot);
                }
            }
            EACH_ROW(r) group[r] += u32(computed6[r]) * p.group_stride_1;
            EACH_ROW(r) {
                if (alive >> r & 1u) {
                    const u32 at = group[r];
                    hr::mark(block_count_0 + at);
                    hr::add_total<2>(block_sum_1 + 2 * at, i64((column4[r] - column5[r])));
                }
            }
        }
    }}
    hr::add_count(p.left_0, left_0);
    hr::add_count(p.left_1, left_1);
    hr::add_count(p.left_2, left_2);
    hr::add_count(p.left_3, left_3);

    // merge the block's accumulators
    __syncthreads();
    hr::flush_count(p.count_0, block_count_0, p.groups, p.replica_mask + 1u);
    hr::flush_total64(p.sum_1, block_sum_1, p.groups, p.replica_mask + 1u);
}
