// Products of a chunk of a sparse matrix. START_BITS, INDEX_BITS and VALUE_BITS say what its arrays are; without values
// (0) all are 1. Terms and sums are those of the cores, in the same order: the bits are the same. Nothing is added by
// atomics; each place in y and in the heads has one writer.

typedef unsigned long long u64;
typedef unsigned int u32;

constexpr u32 BLOCK = 128;
// Entries whose sums a block computes, and lanes that a row's terms are added in.
constexpr u32 TILE = 512, LANES = 8;
constexpr u64 NONE = ~0ull;

// A chunk: where its arrays lie.
struct Chunk {
    u64 starts, indices, values;
    // Its first row; how many starts of rows it has; its entries, counted through the file.
    u64 first_row, rows, from, to;
    // Columns are below this.
    u64 index_end;
};

struct Params : Chunk {
    const double* x;
    u64 x_length, vectors;
    double* y;
    u64 y_length;
    // For each tile of the matrix the row that goes on into it, and its sums there.
    u64* head_rows;
    double* heads;
    // The first row and the first entry that are wrong.
    u64* faults;
};

__device__ u64 start_of(const Chunk& p, u64 row) {
#if START_BITS == 32
    return ((const u32*)p.starts)[row];
#else
    return ((const u64*)p.starts)[row];
#endif
}

__device__ u64 index_of(const Chunk& p, u64 at) {
#if INDEX_BITS == 32
    return __ldcs((const u32*)p.indices + at);
#else
    return __ldcs((const u64*)p.indices + at);
#endif
}

__device__ double term_of(const Chunk& p, u64 at, double factor) {
#if VALUE_BITS == 32
    return __dmul_rn(__ldcs((const float*)p.values + at), factor);
#elif VALUE_BITS == 64
    return __dmul_rn(__ldcs((const double*)p.values + at), factor);
#else
    return factor;
#endif
}

// How many rows begin before an entry.
__device__ u64 rows_before(const Chunk& p, u64 entry) {
    u64 low = 0, high = p.rows;
    while (low < high) {
        const u64 middle = (low + high) / 2;
        if (start_of(p, middle) < entry) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// Whether rows follow each other between the chunk's ends; one a thread. Runs before the kernels of tiles.
extern "C" __global__ void __launch_bounds__(BLOCK) check(const __grid_constant__ Params p) {
    const u64 row = (u64)blockIdx.x * BLOCK + threadIdx.x;
    if (row >= p.rows) return;
    const u64 start = start_of(p, row);
    bool is_wrong;
    if (row == 0) {
        // What goes on from an earlier chunk was cut between tiles.
        is_wrong = start > p.from || (start < p.from && p.from % TILE != 0);
    } else {
        const u64 before = start_of(p, row - 1);
        is_wrong = start < before || start < p.from || start > p.to;
    }
    if (is_wrong) atomicMin(p.faults, p.first_row + row);
}

// A tile a block: terms by all threads, then the sum of each row by a group of lanes.
extern "C" __global__ void __launch_bounds__(BLOCK) multiply(const __grid_constant__ Params p) {
    __shared__ double terms[TILE];
    __shared__ u64 rows[2];
    if (p.faults[0] != NONE) return;
    const u64 tile = p.from / TILE + blockIdx.x;
    const u64 begin = tile * TILE > p.from ? tile * TILE : p.from;
    const u64 end = (tile + 1) * TILE < p.to ? (tile + 1) * TILE : p.to;
    if (begin >= end) return;
    // Rows with entries here, and perhaps others: from the one that begins at the tile's first entry or before it.
    if (threadIdx.x == 0) rows[0] = rows_before(p, begin + 1) - 1;
    if (threadIdx.x == 32) rows[1] = rows_before(p, end);
    const u32 lane = threadIdx.x % LANES;
    for (u64 vector = 0; vector < p.vectors; vector++) {
        const double* x = p.x + vector * p.x_length;
        for (u64 at = begin + threadIdx.x; at < end; at += BLOCK) {
            const u64 index = index_of(p, at - p.from);
            if (index < p.index_end) {
                terms[at - begin] = term_of(p, at - p.from, x[index]);
            } else {
                terms[at - begin] = 0;
                atomicMin(p.faults + 1, at);
            }
        }
        __syncthreads();
        // All lanes of a warp go through it equally often.
        for (u64 next = rows[0]; next < rows[1]; next += BLOCK / LANES) {
            const u64 row = next + threadIdx.x / LANES;
            u64 start = end, stop = end;
            if (row < rows[1]) {
                start = start_of(p, row);
                stop = row + 1 < p.rows ? start_of(p, row + 1) : p.to;
                if (stop > end) stop = end;
            }
            const u64 first = start > begin ? start : begin;
            double sum = 0;
            for (u64 at = first + lane; at < stop; at += LANES) sum += terms[at - begin];
            sum += __shfl_down_sync(~0u, sum, 4, LANES);
            sum += __shfl_down_sync(~0u, sum, 2, LANES);
            sum += __shfl_down_sync(~0u, sum, 1, LANES);
            if (lane != 0 || first >= stop) continue;
            if (start >= begin) {
                p.y[vector * p.y_length + p.first_row + row] = sum;
            } else {
                p.head_rows[tile] = p.first_row + row;
                p.heads[tile * p.vectors + vector] = sum;
            }
        }
        __syncthreads();
    }
}

// Adds the heads of a row to it, tile after tile, by the thread of the first of them. Of all tiles.
extern "C" __global__ void __launch_bounds__(BLOCK) add_heads(const __grid_constant__ Params p) {
    const u64 first = (u64)blockIdx.x * BLOCK + threadIdx.x, tiles = (p.to + TILE - 1) / TILE;
    if (first >= tiles) return;
    const u64 row = p.head_rows[first];
    if (row == NONE || (first > 0 && p.head_rows[first - 1] == row)) return;
    for (u64 vector = 0; vector < p.vectors; vector++) {
        double* y = p.y + vector * p.y_length + row;
        double sum = *y;
        for (u64 tile = first; tile < tiles && p.head_rows[tile] == row; tile++) {
            sum += p.heads[tile * p.vectors + vector];
        }
        *y = sum;
    }
}

// Vertices whose ranks a block makes.
constexpr u64 RANKED = 1 << 14;

struct RankParams {
    // The product. Zeros afterwards, for the next.
    double* y;
    double* ranks;
    // The share of a vertex's rank that each of its edges carries.
    double* shares;
    const u64* degrees;
    u64 vertices;
    double base, damping;
    // For each block how much its ranks have changed, and how much dangles.
    double* sums;
    u64 unused[8];
};

// New ranks and shares from a product. Sums as on the cores: vertex v in sum v % BLOCK, then the sums in pairs.
extern "C" __global__ void __launch_bounds__(BLOCK) rank(const __grid_constant__ RankParams p) {
    __shared__ double changes[BLOCK], dangling[BLOCK];
    const u64 begin = blockIdx.x * RANKED;
    const u64 end = begin + RANKED < p.vertices ? begin + RANKED : p.vertices;
    double change = 0, dangles = 0;
    for (u64 vertex = begin + threadIdx.x; vertex < end; vertex += BLOCK) {
        const double old = p.ranks[vertex];
        const double now = p.base + __dmul_rn(p.damping, p.y[vertex]);
        p.y[vertex] = 0;
        p.ranks[vertex] = now;
        const double step = now - old;
        change += step < 0 ? -step : step;
        const u64 degree = p.degrees[vertex];
        if (degree == 0) {
            dangles += now;
        } else {
            p.shares[vertex] = now / (double)degree;
        }
    }
    changes[threadIdx.x] = change;
    dangling[threadIdx.x] = dangles;
    for (u32 half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            changes[threadIdx.x] += changes[threadIdx.x + half];
            dangling[threadIdx.x] += dangling[threadIdx.x + half];
        }
    }
    if (threadIdx.x != 0) return;
    p.sums[2 * (u64)blockIdx.x] = changes[0];
    p.sums[2 * (u64)blockIdx.x + 1] = dangling[0];
}
