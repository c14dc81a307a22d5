// Set operations on two sorted lists in device memory, in tiles of equal size.
//
// Before this text stand, for the keys and the operation at hand:
//   KEY                  type of a key;  BITS: the type that is compared instead
//   ordered(KEY)         what is compared, in the order of the list
//   REPEATS              whether a key may be there more than once
//   OUT_A OUT_B OUT_BOTH whether keys of the first list alone, of the second alone, of both are put out
//   COUNT_ONLY           whether they are counted only
//   THREADS ITEMS        threads of a block, keys that each takes
//
// `cut_tiles` finds where tiles begin (see `cut.rs` for what a cut is), `merge_tiles` merges each: a block
// loads both stretches, a thread merges a few keys of its own, and what is put out is closed up, first in the
// block and then, by a decoupled look-back (Merrill, Garland 2016), behind the tiles before it.

typedef unsigned int u32;
typedef unsigned long long u64;

#define TILE (THREADS * ITEMS)

struct Outcome {
    u64 keys;      // put out by this pair of stretches and those before it
    u64 unsorted;  // the first pair that is out of order
};

struct Params {
    const KEY* a;
    const KEY* b;
    KEY* out;
    uint2* cuts;    // of tiles, and one behind the last
    u64* states;    // of tiles
    u32* ticket;
    Outcome* outcome;
    u32 a_keys, b_keys;
    u32 tiles, pair;
};

__device__ __forceinline__ bool in_order(KEY before, KEY after) {
#if REPEATS
    return ordered(before) <= ordered(after);
#else
    return ordered(before) < ordered(after);
#endif
}

// The first of `keys[low..high]` that is not below `key`, or (`above`) above it.
__device__ __forceinline__ u32 bound(const KEY* keys, u32 low, u32 high, BITS key, bool above) {
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        const BITS other = ordered(keys[middle]);
        if (above ? other <= key : other < key) low = middle + 1; else high = middle;
    }
    return low;
}

// Where both lists are cut such that what lies before has `diagonal` keys, or one more.
__device__ uint2 cut_at(const KEY* a, u32 a_keys, const KEY* b, u32 b_keys, u32 diagonal) {
    u32 low = diagonal > b_keys ? diagonal - b_keys : 0, high = min(diagonal, a_keys);
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (ordered(a[middle]) <= ordered(b[diagonal - 1 - middle])) low = middle + 1; else high = middle;
    }
    const u32 i = low, j = diagonal - low;
#if !REPEATS
    // The merge takes the first list's copy first: the second's goes with it.
    const bool splits = i > 0 && j < b_keys && ordered(a[i - 1]) == ordered(b[j]);
    return make_uint2(i, j + splits);
#else
    if (i == a_keys && j == b_keys) return make_uint2(i, j);
    BITS next;
    if (i == a_keys) next = ordered(b[j]);
    else if (j == b_keys) next = ordered(a[i]);
    else next = min(ordered(a[i]), ordered(b[j]));
    const bool in_a = i > 0 && ordered(a[i - 1]) == next, in_b = j > 0 && ordered(b[j - 1]) == next;
    if (!in_a && !in_b) return make_uint2(i, j);
    const u32 first_a = in_a ? bound(a, 0, i, next, false) : i;
    const u32 first_b = in_b ? bound(b, 0, j, next, false) : j;
    const u32 taken = (i - first_a) + (j - first_b);
    const u32 run_a = bound(a, i, a_keys, next, true) - first_a;
    const u32 run_b = bound(b, j, b_keys, next, true) - first_b;
    const u32 paired = min(run_a, run_b);
    if (taken < 2 * (u64)paired) {
        return make_uint2(first_a + (taken + 1) / 2, first_b + (taken + 1) / 2);
    }
    if (run_a > run_b) return make_uint2(first_a + taken - paired, first_b + paired);
    return make_uint2(first_a + paired, first_b + taken - paired);
#endif
}

extern "C" __global__ void cut_tiles(const Params p) {
    const u32 tile = blockIdx.x * blockDim.x + threadIdx.x;
    if (tile > p.tiles) return;
    const u32 all = p.a_keys + p.b_keys;
    const u32 diagonal = tile == p.tiles ? all : tile * TILE;
    p.cuts[tile] = cut_at(p.a, p.a_keys, p.b, p.b_keys, diagonal);
    if (tile < p.tiles) p.states[tile] = 0;
    if (tile == 0) {
        *p.ticket = 0;
        if (p.pair == 0) *p.outcome = Outcome{0, ~0ull};
    }
}

// A tile's state: what it puts out, or (PREFIX) what it and all before it do.
#define TOTAL (1ull << 62)
#define PREFIX (2ull << 62)
#define VALUE (TOTAL - 1)

// Keys put out by the tiles before this one; called by the first warp.
__device__ u64 look_back(const Params& p, u32 tile, u32 total) {
    const u32 lane = threadIdx.x;
    u64 before = 0;
    if (tile == 0) {
        before = p.outcome->keys;
    } else {
        if (lane == 0) atomicExch(&p.states[tile], TOTAL | total);
        int last = (int)tile - 1;
        while (true) {
            u64 state = PREFIX;
            if (last >= (int)lane) {
                do { state = *(volatile u64*)&p.states[last - lane]; } while (state == 0);
            }
            const u32 prefixes = __ballot_sync(~0u, (state & PREFIX) != 0);
            // The nearest tile whose prefix is known ends the walk.
            const u32 walked = prefixes ? __ffs(prefixes) - 1 : 31;
            u64 value = lane <= walked ? state & VALUE : 0;
            for (u32 step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
            before += __shfl_sync(~0u, value, 0);
            if (prefixes) break;
            last -= 32;
        }
    }
    if (lane == 0) {
        atomicExch(&p.states[tile], PREFIX | (before + total));
        if (tile == p.tiles - 1) p.outcome->keys = before + total;
    }
    return before;
}

extern "C" __global__ void __launch_bounds__(THREADS) merge_tiles(const Params p) {
    // One key more where a cut pairs off copies, one that is loaded and not looked at.
    __shared__ KEY keys[TILE + 2];
    __shared__ uint2 cuts[THREADS + 1];
    __shared__ u32 of_warp[THREADS / 32], tile_shared;
    __shared__ u64 before_shared;
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    if (thread == 0) tile_shared = atomicAdd(p.ticket, 1);
    __syncthreads();
    const u32 tile = tile_shared;
    const uint2 from = p.cuts[tile], to = p.cuts[tile + 1];
    // Cuts of lists that are out of order may contradict each other.
    bool sorted = from.x <= to.x && from.y <= to.y;
    const u32 a_keys = sorted ? to.x - from.x : 0, b_keys = sorted ? to.y - from.y : 0;
    const u32 all = a_keys + b_keys;
    const KEY* b = keys + a_keys;
#pragma unroll
    for (u32 item = 0; item <= ITEMS; item++) {
        const u32 at = item * THREADS + thread;
        if (at < all) keys[at] = at < a_keys ? p.a[from.x + at] : p.b[from.y + at - a_keys];
    }
    __syncthreads();
#pragma unroll
    for (u32 item = 0; item <= ITEMS; item++) {
        const u32 at = item * THREADS + thread;
        if (at >= all) break;
        if (at != 0 && at != a_keys) {
            sorted &= in_order(keys[at - 1], keys[at]);
        } else if (at < a_keys) {
            if (from.x > 0) sorted &= in_order(p.a[from.x - 1], keys[at]);
        } else if (from.y > 0) {
            sorted &= in_order(p.b[from.y - 1], keys[at]);
        }
    }
    cuts[thread] = cut_at(keys, a_keys, b, b_keys, min(thread * ITEMS, all));
    if (thread == 0) cuts[THREADS] = make_uint2(a_keys, b_keys);
    __syncthreads();
    u32 i = cuts[thread].x, j = cuts[thread].y;
    const uint2 end = cuts[thread + 1];
    KEY found[ITEMS + 1];
    u32 puts_out = 0;
    if (end.x < i || end.y < j) {
        sorted = false;
    } else {
        KEY x = keys[i], y = b[j];
#pragma unroll
        for (u32 step = 0; step <= ITEMS; step++) {
            const bool has_a = i < end.x, has_b = j < end.y;
            const bool takes_a = has_a && (!has_b || ordered(x) <= ordered(y));
            const bool takes_b = has_b && (!has_a || ordered(y) <= ordered(x));
            found[step] = takes_a ? x : y;
            const bool out = (OUT_A && takes_a && !takes_b) || (OUT_B && takes_b && !takes_a) ||
                             (OUT_BOTH && takes_a && takes_b);
            puts_out |= (u32)out << step;
            if (takes_a) x = keys[++i];
            if (takes_b) y = b[++j];
        }
    }
    if (!__all_sync(~0u, sorted) && lane == 0) atomicMin(&p.outcome->unsorted, (u64)p.pair);
    u32 rank = __popc(puts_out);
    const u32 count = rank;
    for (u32 step = 1; step < 32; step *= 2) {
        const u32 other = __shfl_up_sync(~0u, rank, step);
        if (lane >= step) rank += other;
    }
    if (lane == 31) of_warp[warp] = rank;
    rank -= count;
    __syncthreads();
    u32 total = 0;
    for (u32 other = 0; other < THREADS / 32; other++) {
        if (other == warp) rank += total;
        total += of_warp[other];
    }
#if COUNT_ONLY
    if (thread == 0 && total > 0) atomicAdd(&p.outcome->keys, (u64)total);
#else
#pragma unroll
    for (u32 step = 0; step <= ITEMS; step++) {
        if (puts_out >> step & 1) keys[rank++] = found[step];
    }
    if (warp == 0) {
        const u64 before = look_back(p, tile, total);
        if (lane == 0) before_shared = before;
    }
    __syncthreads();
    KEY* out = p.out + before_shared;
    for (u32 at = thread; at < total; at += THREADS) out[at] = keys[at];
#endif
}
