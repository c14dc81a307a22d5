// Products of a tile, and their sums added to the results. VALUE_BITS says what the values are: 16 is bf16.
//
// Every sum is computed in one order, whatever the number of blocks: of a row and a span by the lanes of a group
// and then pairwise, of a band and a column by one thread, row after row. Nothing is added by atomics.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned char u8;

// Values that a lane loads at once: 16 bytes.
constexpr u32 PER = 128 / VALUE_BITS;
constexpr u32 BLOCK = 256;

struct Params {
    // Where the tile lies, and how far from each other its rows are.
    u64 base, row_bytes;
    u64 rows, columns, first_row, first_column, band_rows, span_columns;
    // Vectors that the tile is multiplied with, one behind the other; from `vector` on, of `vectors`.
    const double* x;
    u64 x_length, vector, vectors;
    double* sums;
    // What they are added to.
    double* y;
    u64 y_length;
    // Lanes that share a row: BLOCK, or a power of two up to 32.
    u64 group;
};

__device__ const u8* row_of(const Params& p, u64 row) {
    return (const u8*)(p.base + row * p.row_bytes);
}

__device__ double widen(const u8* value) {
#if VALUE_BITS == 64
    return *(const double*)value;
#elif VALUE_BITS == 32
    return *(const float*)value;
#else
    return __uint_as_float((u32)(*(const unsigned short*)value) << 16);
#endif
}

// Values from `column` on; zeros behind `end`.
__device__ void load(const u8* row, u64 column, u64 end, double (&a)[PER]) {
    const u8* at = row + column * (VALUE_BITS / 8);
    if (((u64)at & 15) == 0 && column + PER <= end) {
        // Each value is used once.
        const uint4 loaded = __ldcs((const uint4*)at);
        const u32 words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
        for (u32 i = 0; i < PER; i++) {
#if VALUE_BITS == 64
            a[i] = __hiloint2double(words[2 * i + 1], words[2 * i]);
#elif VALUE_BITS == 32
            a[i] = __uint_as_float(words[i]);
#else
            a[i] = __uint_as_float(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
#endif
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < PER; i++) a[i] = column + i < end ? widen(at + i * (VALUE_BITS / 8)) : 0.0;
    }
}

// A sum for each of R rows, X vectors and a span by each group of lanes.
template <u32 R, u32 X> __device__ void forward(const Params& p) {
    __shared__ double of_warp[BLOCK / 32][R * X];
    const u32 group = p.group, lane = threadIdx.x % group;
    const u64 unit = ((u64)blockIdx.x * BLOCK + threadIdx.x) / group;
    const u64 parts = (p.rows + R - 1) / R, span = unit / parts, row = unit % parts * R;
    const u64 begin = span * p.span_columns;
    const u64 end = begin + p.span_columns < p.columns ? begin + p.span_columns : p.columns;
    const u8* rows[R];
#pragma unroll
    for (u32 r = 0; r < R; r++) rows[r] = row_of(p, row + r < p.rows ? row + r : p.rows - 1);
    double sums[R][X] = {};
    for (u64 column = begin + lane * PER; column < end; column += (u64)group * PER) {
        double a[R][PER];
#pragma unroll
        for (u32 r = 0; r < R; r++) load(rows[r], column, end, a[r]);
#pragma unroll
        for (u32 v = 0; v < X; v++) {
            const double* x = p.x + (p.vector + v) * p.x_length + p.first_column + column;
#pragma unroll
            for (u32 i = 0; i < PER; i++) {
                const double factor = column + i < end ? x[i] : 0.0;
#pragma unroll
                for (u32 r = 0; r < R; r++) sums[r][v] = fma(a[r][i], factor, sums[r][v]);
            }
        }
    }
    const u32 width = group < 32 ? group : 32;
#pragma unroll
    for (u32 r = 0; r < R; r++) {
#pragma unroll
        for (u32 v = 0; v < X; v++) {
            for (u32 away = width / 2; away > 0; away /= 2) {
                sums[r][v] += __shfl_down_sync(~0u, sums[r][v], away, width);
            }
        }
    }
    if (group == BLOCK) {
        if (threadIdx.x % 32 == 0) {
#pragma unroll
            for (u32 i = 0; i < R * X; i++) of_warp[threadIdx.x / 32][i] = sums[i / X][i % X];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
#pragma unroll
            for (u32 i = 0; i < R * X; i++) {
                for (u32 warp = 1; warp < BLOCK / 32; warp++) sums[i / X][i % X] += of_warp[warp][i];
            }
        }
    }
    if (lane != 0 || begin >= p.columns) return;
#pragma unroll
    for (u32 r = 0; r < R; r++) {
#pragma unroll
        for (u32 v = 0; v < X; v++) {
            if (row + r < p.rows) p.sums[(span * p.vectors + p.vector + v) * p.rows + row + r] = sums[r][v];
        }
    }
}

// A sum for each of X vectors, PER columns and a band by each thread.
template <u32 X> __device__ void transposed(const Params& p) {
    const u64 parts = (p.columns + PER - 1) / PER;
    const u64 unit = (u64)blockIdx.x * BLOCK + threadIdx.x;
    const u64 band = unit / parts, column = unit % parts * PER;
    const u64 begin = band * p.band_rows;
    const u64 end = begin + p.band_rows < p.rows ? begin + p.band_rows : p.rows;
    if (begin >= p.rows) return;
    double sums[X][PER] = {};
#pragma unroll 8
    for (u64 row = begin; row < end; row++) {
        double a[PER];
        load(row_of(p, row), column, p.columns, a);
#pragma unroll
        for (u32 v = 0; v < X; v++) {
            const double factor = p.x[(p.vector + v) * p.x_length + p.first_row + row];
#pragma unroll
            for (u32 i = 0; i < PER; i++) sums[v][i] = fma(a[i], factor, sums[v][i]);
        }
    }
#pragma unroll
    for (u32 v = 0; v < X; v++) {
        double* to = p.sums + (band * p.vectors + p.vector + v) * p.columns + column;
#pragma unroll
        for (u32 i = 0; i < PER; i++) {
            if (column + i < p.columns) to[i] = sums[v][i];
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) forward_1(const __grid_constant__ Params p) { forward<8, 1>(p); }
extern "C" __global__ void __launch_bounds__(BLOCK) forward_4(const __grid_constant__ Params p) { forward<4, 4>(p); }
extern "C" __global__ void __launch_bounds__(BLOCK) transposed_1(const __grid_constant__ Params p) { transposed<1>(p); }
extern "C" __global__ void __launch_bounds__(BLOCK) transposed_4(const __grid_constant__ Params p) { transposed<4>(p); }

// Adds the sums of rows span by span, one result a thread.
extern "C" __global__ void add_forward(const __grid_constant__ Params p) {
    const u64 i = (u64)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= p.rows * p.vectors) return;
    double* y = p.y + i / p.rows * p.y_length + p.first_row + i % p.rows;
    double sum = *y;
    for (u64 begin = 0, at = i; begin < p.columns; begin += p.span_columns, at += p.rows * p.vectors) {
        sum += p.sums[at];
    }
    *y = sum;
}

// Adds the sums of columns band by band, one result a thread.
extern "C" __global__ void add_transposed(const __grid_constant__ Params p) {
    const u64 i = (u64)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= p.columns * p.vectors) return;
    double* y = p.y + i / p.columns * p.y_length + p.first_column + i % p.columns;
    double sum = *y;
    for (u64 begin = 0, at = i; begin < p.rows; begin += p.band_rows, at += p.columns * p.vectors) {
        sum += p.sums[at];
    }
    *y = sum;
}
