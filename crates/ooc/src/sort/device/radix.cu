// Records in device memory, sorted by digits of 8 bits, the last first: stable.
//
// The text before this one says what records are:
//   WORDS      words of 32 bits of a record, 1 to 4
//   KEY_BYTES  4 or 8
//   KEY_AT     where in the record the key begins, in bytes
//   KEY_FLOAT  whether it is a float
//   THREADS, ITEMS   of a block; records of a thread of `sweep`
//
// `sweep` moves every record once for a digit. A block takes the next tile, ranks its records, tells how many it has
// of each digit, looks back at what the tiles before it have told, and writes: nobody waits for a tile that has not
// begun, because tiles are taken in their order.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;

#define DIGITS 256
#define WARPS (THREADS / 32)
#define TILE (THREADS * ITEMS)
#define ALL 0xffffffffu

#if WORDS == 1
struct __align__(4) Record { u32 words[WORDS]; };
#elif WORDS == 2
struct __align__(8) Record { u32 words[WORDS]; };
#elif WORDS == 3
struct __align__(4) Record { u32 words[WORDS]; };
#else
struct __align__(16) Record { u32 words[WORDS]; };
#endif

__device__ __forceinline__ u32 word_at(const Record& record, u32 word) {
#if KEY_AT % 4 == 0
    return record.words[KEY_AT / 4 + word];
#else
    const u32 first = KEY_AT / 4 + word;
    return __funnelshift_r(record.words[first], record.words[first + 1], KEY_AT % 4 * 8);
#endif
}

// Bits whose unsigned order is that of numbers.
__device__ __forceinline__ u32 ordered(u32 bits) {
#if KEY_FLOAT
    if ((bits & 0x7fffffffu) > 0x7f800000u) return ALL;
    if (bits == 0x80000000u) bits = 0;
    bits ^= (u32)((int)bits >> 31) | 0x80000000u;
#endif
    return bits;
}

__device__ __forceinline__ u64 ordered(u64 bits) {
#if KEY_FLOAT
    if ((bits & 0x7fffffffffffffffull) > 0x7ff0000000000000ull) return ~0ull;
    if (bits == 0x8000000000000000ull) bits = 0;
    bits ^= (u64)((long long)bits >> 63) | 0x8000000000000000ull;
#endif
    return bits;
}

#if KEY_BYTES == 8
typedef u64 Key;
__device__ __forceinline__ Key key_of(const Record& record, u64 mask) {
    return ordered((u64)word_at(record, 1) << 32 | word_at(record, 0)) ^ mask;
}
#else
typedef u32 Key;
__device__ __forceinline__ Key key_of(const Record& record, u64 mask) {
    return ordered(word_at(record, 0)) ^ (u32)mask;
}
#endif

__device__ __forceinline__ u32 digit_of(const Record& record, u64 mask, u32 shift) {
    return (u32)(key_of(record, mask) >> shift) & (DIGITS - 1);
}

struct Take {
    const Record* from;
    Record* to;
    u64* counts;
    u64 records;
    u64 mask;
};

// Copies records and counts all digits of their keys.
extern "C" __global__ void __launch_bounds__(THREADS) take(const Take p) {
    __shared__ u32 counts[KEY_BYTES * DIGITS];
    for (u32 i = threadIdx.x; i < KEY_BYTES * DIGITS; i += THREADS) counts[i] = 0;
    __syncthreads();
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < p.records; i += (u64)gridDim.x * THREADS) {
        const Record record = p.from[i];
        p.to[i] = record;
        const Key key = key_of(record, p.mask);
#pragma unroll
        for (u32 digit = 0; digit < KEY_BYTES; digit++)
            atomicAdd(&counts[digit * DIGITS + ((u32)(key >> (8 * digit)) & (DIGITS - 1))], 1u);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < KEY_BYTES * DIGITS; i += THREADS)
        if (counts[i] > 0) atomicAdd(&p.counts[i], (u64)counts[i]);
}

// What a tile tells of a digit: how many records it has, or it and all tiles before it have.
#define HAS (1ull << 62)
#define HAVE (2ull << 62)
#define COUNT (HAS - 1)

struct Sweep {
    const Record* from;
    Record* to;
    // Records of all smaller digits, by digit.
    const u64* starts;
    // By tile and digit, zero.
    u64* told;
    // Zero.
    u32* next_tile;
    u64 records;
    u64 mask;
    u64 shift;
};

// How many records the tiles before this one have of a digit.
__device__ __forceinline__ u64 look_back(const u64* told, u64 tile, u32 digit) {
    u64 sum = 0;
    while (tile-- > 0) {
        const volatile u64* at = &told[tile * DIGITS + digit];
        u64 tells;
        do tells = *at; while (tells == 0);
        sum += tells & COUNT;
        if (tells >= HAVE) break;
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) sweep(const Sweep p) {
    extern __shared__ __align__(16) u8 memory[];
    Record* const sorted = (Record*)memory;
    __shared__ u32 ranks[WARPS][DIGITS];
    __shared__ u32 firsts[DIGITS];
    __shared__ u64 bases[DIGITS];
    __shared__ u32 sums[DIGITS / 32];
    __shared__ u32 taken;
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    if (thread == 0) taken = atomicAdd(p.next_tile, 1u);
    for (u32 i = thread; i < WARPS * DIGITS; i += THREADS) ranks[i / DIGITS][i % DIGITS] = 0;
    __syncthreads();
    const u64 tile = taken, start = tile * TILE;
    const u32 count = p.records - start < TILE ? (u32)(p.records - start) : TILE;
    const u32 shift = (u32)p.shift, mine = warp * 32 * ITEMS + lane;

    Record records[ITEMS];
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++)
        if (mine + i * 32 < count) records[i] = p.from[start + mine + i * 32];

    // By record: its digit, and how many of that digit are before it in its warp.
    u32 places[ITEMS];
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        // What is behind the last record is behind all records of the last digit, too.
        const u32 digit = mine + i * 32 < count ? digit_of(records[i], p.mask, shift) : DIGITS - 1;
        u32 peers = ALL;
#pragma unroll
        for (u32 bit = 0; bit < 8; bit++) {
            const bool is_set = digit >> bit & 1;
            const u32 votes = __ballot_sync(ALL, is_set);
            peers &= is_set ? votes : ~votes;
        }
        const u32 before = __popc(peers & ((1u << lane) - 1));
        const u32 rank = ranks[warp][digit];
        __syncwarp();
        if (before == 0) ranks[warp][digit] = rank + __popc(peers);
        __syncwarp();
        places[i] = digit << 16 | (rank + before);
    }
    __syncthreads();

    // A thread a digit: what earlier warps have of it, then all of them.
    u32 total = 0, upto = 0;
    if (thread < DIGITS) {
        for (u32 w = 0; w < WARPS; w++) {
            const u32 of_warp = ranks[w][thread];
            ranks[w][thread] = total;
            total += of_warp;
        }
        volatile u64* const told = &p.told[tile * DIGITS + thread];
        *told = (tile == 0 ? HAVE : HAS) | total;
        upto = total;
#pragma unroll
        for (u32 step = 1; step < 32; step *= 2) {
            const u32 left = __shfl_up_sync(ALL, upto, step);
            if (lane >= step) upto += left;
        }
        if (lane == 31) sums[warp] = upto;
    }
    __syncthreads();
    if (thread < DIGITS) {
        u32 first = upto - total;
        for (u32 w = 0; w < warp; w++) first += sums[w];
        firsts[thread] = first;
    }
    __syncthreads();

    // Put in order first, so that what is written lies together.
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        const u32 digit = places[i] >> 16, rank = places[i] & 0xffff;
        if (mine + i * 32 < count) sorted[firsts[digit] + ranks[warp][digit] + rank] = records[i];
    }
    if (thread < DIGITS) {
        const u64 before = look_back(p.told, tile, thread);
        volatile u64* const told = &p.told[tile * DIGITS + thread];
        if (tile > 0) *told = HAVE | (before + total);
        bases[thread] = p.starts[thread] + before - firsts[thread];
    }
    __syncthreads();
#pragma unroll 4
    for (u32 i = thread; i < count; i += THREADS) {
        const Record record = sorted[i];
        p.to[bases[digit_of(record, p.mask, shift)] + i] = record;
    }
}

// Records of any width: what is sorted is a record of four words, the key's ordered bits and the record's number.

struct Note {
    const u8* from;
    Record* to;
    u64* counts;
    u64 records;
    u64 first;
    u64 mask;
    u64 record_bytes;
    u64 key_at;
    // Bytes of the key, and whether it is a float.
    u64 key_bytes;
    u64 is_float;
};

#if WORDS == 4 && KEY_BYTES == 8 && KEY_AT == 0 && !KEY_FLOAT
__device__ __forceinline__ u64 float_bits(u64 bits, u64 key_bytes) {
    if (key_bytes == 4) {
        if ((bits & 0x7fffffffu) > 0x7f800000u) return ALL;
        if (bits == 0x80000000u) bits = 0;
        return (u32)bits ^ ((u32)((int)(u32)bits >> 31) | 0x80000000u);
    }
    if ((bits & 0x7fffffffffffffffull) > 0x7ff0000000000000ull) return ~0ull;
    if (bits == 0x8000000000000000ull) bits = 0;
    return bits ^ ((u64)((long long)bits >> 63) | 0x8000000000000000ull);
}

// Makes records out of others, and counts all digits of their keys.
extern "C" __global__ void __launch_bounds__(THREADS) note(const Note p) {
    __shared__ u32 counts[KEY_BYTES * DIGITS];
    for (u32 i = threadIdx.x; i < KEY_BYTES * DIGITS; i += THREADS) counts[i] = 0;
    __syncthreads();
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < p.records; i += (u64)gridDim.x * THREADS) {
        const u8* const at = p.from + i * p.record_bytes + p.key_at;
        u64 key = 0;
        for (u32 byte = 0; byte < p.key_bytes; byte++) key |= (u64)at[byte] << (8 * byte);
        if (p.is_float) key = float_bits(key, p.key_bytes);
        key ^= p.mask;
        const u64 number = p.first + i;
        Record record;
        record.words[0] = (u32)key;
        record.words[1] = (u32)(key >> 32);
        record.words[2] = (u32)number;
        record.words[3] = (u32)(number >> 32);
        p.to[i] = record;
#pragma unroll
        for (u32 digit = 0; digit < KEY_BYTES; digit++)
            atomicAdd(&counts[digit * DIGITS + ((u32)(key >> (8 * digit)) & (DIGITS - 1))], 1u);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < KEY_BYTES * DIGITS; i += THREADS)
        if (counts[i] > 0) atomicAdd(&p.counts[i], (u64)counts[i]);
}

struct Gather {
    const Record* order;
    const u8* from;
    u8* to;
    // Of the output.
    u64 first_byte;
    u64 bytes;
    u64 record_bytes;
};

// Bytes of the output: those of the records in their order.
extern "C" __global__ void __launch_bounds__(THREADS) gather(const Gather p) {
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < p.bytes; i += (u64)gridDim.x * THREADS) {
        const u64 byte = p.first_byte + i, place = byte / p.record_bytes;
        const Record record = p.order[place];
        const u64 number = (u64)record.words[3] << 32 | record.words[2];
        p.to[i] = p.from[number * p.record_bytes + byte % p.record_bytes];
    }
}
#endif
