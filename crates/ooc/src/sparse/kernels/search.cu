// The next level of a graph's vertices, behind the kernels of products (sparse.cu): a tile a block, a row's entries there by a
// group of lanes, which ends with the first of its steps that meets the frontier. What a tile finds is written twice at most,
// and the same: by the tiles of one long row.

struct SearchParams : Chunk {
    // Of all vertices; negative without one.
    int* levels;
    // Bits of vertices: the level before, and the one that is searched.
    const u32* frontier;
    u32* next;
    u64 level;
    // Not 0 if a row of the chunk stays without a level.
    u64* open;
    // Entries that were looked at, and vertices that were found.
    u64* counts;
    u64 unused;
    u64* faults;
};

// Sums over the threads of a warp, added by one of them.
__device__ void add_of_warp(u64* to, u64 count) {
    for (u32 step = 16; step > 0; step /= 2) count += __shfl_down_sync(~0u, count, step);
    if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(to, count);
}

extern "C" __global__ void __launch_bounds__(BLOCK) search(const __grid_constant__ SearchParams p) {
    __shared__ u64 rows[2];
    if (p.faults[0] != NONE) return;
    const u64 tile = p.from / TILE + blockIdx.x;
    const u64 begin = tile * TILE > p.from ? tile * TILE : p.from;
    const u64 end = (tile + 1) * TILE < p.to ? (tile + 1) * TILE : p.to;
    if (begin >= end) return;
    if (threadIdx.x == 0) rows[0] = rows_before(p, begin + 1) - 1;
    if (threadIdx.x == 32) rows[1] = rows_before(p, end);
    __syncthreads();
    const u32 lane = threadIdx.x % LANES, group = threadIdx.x % 32 / LANES * LANES;
    u64 edges = 0, found = 0;
    bool is_open = false;
    // All lanes of a warp go through both loops equally often.
    for (u64 next = rows[0]; next < rows[1]; next += BLOCK / LANES) {
        const u64 row = next + threadIdx.x / LANES, vertex = p.first_row + row;
        u64 first = end, stop = end;
        if (row < rows[1]) {
            const u64 start = start_of(p, row);
            first = start > begin ? start : begin;
            const u64 last = row + 1 < p.rows ? start_of(p, row + 1) : p.to;
            stop = last < end ? last : end;
        }
        bool is_wanted = false;
        if (first < stop) {
            // Another part of a long row may have found the same level meanwhile: it counts as not found.
            const int known = p.levels[vertex];
            is_wanted = known < 0 || (u64)known >= p.level;
        }
        bool is_found = false;
        for (u64 at = first; __ballot_sync(~0u, is_wanted && !is_found && at < stop) != 0; at += LANES) {
            const u64 entry = at + lane;
            bool is_hit = false;
            if (is_wanted && !is_found && entry < stop) {
                const u64 index = index_of(p, entry - p.from);
                edges++;
                if (index < p.index_end) {
                    is_hit = p.frontier[index / 32] >> (index % 32) & 1;
                } else {
                    atomicMin(p.faults + 1, entry);
                }
            }
            if ((__ballot_sync(~0u, is_hit) >> group & ((1u << LANES) - 1)) != 0) is_found = true;
        }
        if (lane != 0 || !is_wanted) continue;
        if (is_found) {
            p.levels[vertex] = (int)p.level;
            const u32 bit = 1u << (vertex % 32);
            if ((atomicOr(p.next + vertex / 32, bit) & bit) == 0) found++;
        } else {
            is_open = true;
        }
    }
    if (is_open) atomicExch(p.open, 1);
    add_of_warp(p.counts, edges);
    add_of_warp(p.counts + 1, found);
}
