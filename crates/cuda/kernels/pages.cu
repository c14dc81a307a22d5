// PostgreSQL heap pages: whether all of a page's rows can be taken, and the values of those that can
// be as columns. One kernel for both, launched twice: the first time it writes a verdict for each
// page, the second time the columns of the pages that somebody gave a place among the rows.
//
// The bytes come from anywhere: torn, stale or garbage. Each offset and length is checked before it
// is used, and what is not sound is a flaw of its page, of which nothing counts then. What a page,
// a tuple and a value must be like, `headrace_format::heap` says, which takes the same pages apart
// on the CPU: this file follows its modules page, tuple, walk, varlena, numeric and column.
//
// A block of threads takes a page: it loads it to shared memory as it lies, and each thread walks
// the tuple of a line pointer there, step by step as all threads do.
#ifndef BLOCK_THREADS
#define BLOCK_THREADS 64
#endif
#define BLOCKS_PER_SM 16
#include "headrace/types.cuh"
#include "headrace/load.cuh"

// A page, its number in its table, and the number of its first row, or NOT_TAKEN.
struct Page { u64 address; u32 block; u32 first_row; };
constexpr u32 NOT_TAKEN = ~0u;

// An attribute of the walk. `length` is its bytes, or one of the two below.
struct Step {
    u32 length, align_mask;
    u32 flags, value;
    u32 column; i32 scale;
    // A numeric's absolute value is below this.
    u64 limit[2];
    // A text: where it begins behind the first step, and its bytes.
    u64 missing[2];
};
constexpr u32 VARLENA = 0, CSTRING = ~0u;
constexpr u32 NOT_NULL = 1, HAS_MISSING = 2, OPAQUE_MISSING = 4, WANTED = 8;
// What a value is.
constexpr u32 BOOL = 0, PLAIN_2 = 1, PLAIN_4 = 2, PLAIN_8 = 3, DATE = 4, TIME = 5, TIMESTAMP = 6, NUMERIC = 7,
              TEXT = 8;

// Where a column goes. Bits are zero before; validity is null where there are no NULLs.
struct Column { u64 values, validity; };

// A flaw and what it is about, or no flaw and the number of rows.
struct Verdict { u32 flaw, detail; };
// The lowest byte of a flaw; the line or the attribute lies above.
constexpr u32 NONE = ~0u, NEW = 1, CHECKSUM = 2, HEADER = 3, NOT_ALL_VISIBLE = 4, LINE = 5, TUPLE = 6,
              EXTERNAL = 7, COMPRESSED = 8, VALUE = 9;

struct Params {
    const Page* pages;
    alignas(8) u32 page_count;
    const Step* steps;
    alignas(8) u32 step_count;
    alignas(8) u32 block_bytes;
    alignas(8) u32 checksums;
    // Attributes of a tuple, and tuples of a page, at most.
    alignas(8) u32 attributes;
    alignas(8) u32 rows_max;
    // Null: columns are written.
    Verdict* verdicts;
    const Column* columns;
};

constexpr u32 HEADER_BYTES = 24, TUPLE_BYTES = 24, BITMAP_AT = 23;
constexpr u32 NORMAL = 1, REDIRECT = 2, DEAD = 3;

namespace hr {

HR_DEVICE u32 align_up(u32 at, u32 mask) { return (at + mask) & ~mask; }

// Little-endian numbers at any place; behind the page there is room to read.
HR_DEVICE u32 word_at(const u8* page, u32 at)
{
    const u32* words = reinterpret_cast<const u32*>(page + (at & ~3u));
    return funnel_right(words[0], words[1], (at & 3u) * 8);
}
HR_DEVICE u32 half_at(const u8* page, u32 at) { return word_at(page, at) & 0xffffu; }
HR_DEVICE u64 double_at(const u8* page, u32 at) { return word_at(page, at) | u64(word_at(page, at + 4)) << 32; }

struct Pointer {
    u32 offset, state, bytes;
    HR_DEVICE Pointer(const u8* page, u32 line)
    {
        const u32 word = reinterpret_cast<const u32*>(page + HEADER_BYTES)[line];
        offset = word & 0x7fffu, state = word >> 15 & 3u, bytes = word >> 17;
    }
};

#ifdef HEADRACE_HOST_SHIM
static const u32 checksum_offsets[32] = {
#else
__device__ const u32 checksum_offsets[32] = {
#endif
    0x5B1F36E9, 0xB8525960, 0x02AB50AA, 0x1DE66D2A, 0x79FF467A, 0x9BB9F8A3, 0x217E7CD2, 0x83E13D2C,
    0xF8D4474F, 0xE39EB970, 0x42C6AE16, 0x993216FA, 0x7B093B5D, 0x98DAFF3C, 0xF718902A, 0x0B1C9CDB,
    0xE58F764B, 0x187636BC, 0x5D7B3BB1, 0xE73DE7DE, 0x92BEC979, 0xCCA6C0B2, 0x304A0979, 0x85AA43D4,
    0x783125BB, 0x6CA8EAA2, 0xE407EAC6, 0x4B5CFC3E, 0x9FBF8C76, 0x15CA20BE, 0xF2CA9FD3, 0x959BD756,
};

HR_DEVICE u32 mix(u32 hash, u32 word)
{
    const u32 mixed = hash ^ word;
    return mixed * 16777619u ^ mixed >> 17;
}

// The hash of every 32nd word of a page.
HR_DEVICE u32 checksum_column(const u8* page, u32 column, u32 block_bytes)
{
    const u32* words = reinterpret_cast<const u32*>(page);
    u32 hash = checksum_offsets[column];
    for (u32 at = column; at < block_bytes / 4; at += 32) {
        // The checksum's own field counts as zero.
        hash = mix(hash, at == 2 ? words[at] & 0xffff0000u : words[at]);
    }
    return mix(mix(hash, 0), 0);
}

// What is wrong with a header whose page is not new.
HR_DEVICE u32 header_flaw(const u8* page, u32 block_bytes)
{
    const u32 flags = half_at(page, 10), lower = half_at(page, 12), upper = half_at(page, 14);
    if (half_at(page, 18) != (block_bytes | 4u)) return HEADER;
    if (lower < HEADER_BYTES || lower > upper || half_at(page, 16) != block_bytes || upper > block_bytes) return HEADER;
    if ((lower - HEADER_BYTES) % 4 != 0 || upper % 8 != 0 || (flags & ~7u) != 0) return HEADER;
    return flags & 4u ? NONE : NOT_ALL_VISIBLE;
}

// Whether a line pointer is one of a sound, all-visible page. A tuple's is entered in `normal`, and
// the tuple's bytes, eight to a bit, in `units`.
HR_DEVICE bool line_is_sound(const u8* page, u32 line, u32 lines, u32 block_bytes, u32* normal, u32* units)
{
    const Pointer pointer(page, line);
    if (pointer.state == DEAD) return false;
    if (pointer.state == REDIRECT) {
        const u32 target = pointer.offset;
        return target >= 1 && target <= lines && Pointer(page, target - 1).state == NORMAL;
    }
    if (pointer.state != NORMAL) return true;
    atomicOr(normal + line / 32, 1u << line % 32);
    const u32 end = align_up(pointer.offset + pointer.bytes, 7u);
    if (pointer.bytes < TUPLE_BYTES || pointer.offset < half_at(page, 14) || end > block_bytes) return false;
    if (pointer.offset % 8 != 0) return false;
    bool overlaps = false;
    for (u32 unit = pointer.offset / 8; unit < end / 8;) {
        const u32 from = unit % 32, left = end / 8 - unit;
        const u32 count = left < 32 - from ? left : 32 - from;
        const u32 mask = (count == 32 ? ~0u : (1u << count) - 1u) << from;
        overlaps |= (atomicOr(units + unit / 32, mask) & mask) != 0;
        unit += count;
    }
    return !overlaps;
}

// How many tuples lines before this one have.
HR_DEVICE u32 tuples_before(const u32* normal, u32 line)
{
    u32 count = 0;
    for (u32 word = 0; word < line / 32; ++word) count += u32(__popc(normal[word]));
    return count + u32(__popc(normal[line / 32] & ((1u << line % 32) - 1u)));
}

// A tuple on its walk.
struct Tuple {
    // The next attribute's place, or before its padding; the first byte behind the tuple.
    u32 at, end;
    u32 attributes;
    // Where the bitmap of attributes that are not null begins; 0: none is.
    u32 bitmap;
    bool has_varlena;

    // Whether the header is sound and says that everybody sees the tuple.
    HR_DEVICE bool open(const u8* page, const Pointer& pointer, u32 attributes_max)
    {
        constexpr u32 has_null = 0x1, has_varlena_bit = 0x2, has_oid = 0x8, xmax_locks = 0x50;
        constexpr u32 xmax_exclusive = 0x40, xmax_lock_only = 0x80, xmin_committed = 0x100;
        constexpr u32 xmax_committed = 0x400, xmax_invalid = 0x800, xmax_is_multi = 0x1000, moved = 0xc000;
        const u32 start = pointer.offset;
        const u32 mask2 = half_at(page, start + 18), mask = half_at(page, start + 20), header = page[start + 22];
        if (!(mask & xmin_committed)) return false;
        const bool locked_only = mask & xmax_lock_only || (mask & (xmax_is_multi | xmax_locks)) == xmax_exclusive;
        if (mask & xmax_committed || !(mask & xmax_invalid || locked_only)) return false;
        if (mask & (has_oid | moved) || mask2 & 0x1800) return false;
        attributes = mask2 & 0x7ff;
        if (attributes > attributes_max) return false;
        const u32 bitmap_bytes = mask & has_null ? (attributes + 7) / 8 : 0;
        if (header != align_up(BITMAP_AT + bitmap_bytes, 7u) || header > pointer.bytes) return false;
        bitmap = mask & has_null ? start + BITMAP_AT : 0;
        has_varlena = (mask & has_varlena_bit) != 0;
        at = start + header;
        end = start + pointer.bytes;
        return true;
    }

    HR_DEVICE bool is_null(const u8* page, u32 attribute) const
    {
        return bitmap != 0 && !(page[bitmap + attribute / 8] >> attribute % 8 & 1u);
    }

    // Steps over a value that is there; where it starts, or 0, where no value does: it is not sound.
    HR_DEVICE u32 step(const u8* page, u32 length, u32 align_mask)
    {
        if (length == VARLENA) return has_varlena ? step_varlena(page, align_mask) : 0;
        const u32 start = align_up(at, align_mask);
        if (length != CSTRING) {
            at = start + length;
            return at <= end ? start : 0;
        }
        if (!has_varlena) return 0;
        for (at = start; at < end;) {
            if (page[at++] == 0) return start;
        }
        return 0;
    }

    HR_DEVICE u32 step_varlena(const u8* page, u32 align_mask)
    {
        constexpr u32 external = 1, on_disk = 18, external_bytes = 18;
        if (at >= end) return 0;
        const u32 first = page[at];
        if (first & 1u) {
            const u32 start = at;
            if (first == external && (at + 1 >= end || page[at + 1] != on_disk)) return 0;
            at += first == external ? external_bytes : first >> 1;
            return at <= end ? start : 0;
        }
        const u32 start = align_up(at, align_mask);
        if ((first != 0 && start != at) || start + 4 > end) return 0;
        const u32 word = word_at(page, start), bytes = word >> 2;
        if (word & 1u || bytes < 4 || bytes > end - start) return 0;
        at = start + bytes;
        return start;
    }
};

// total * factor + addend; false if that is more than 127 bits.
HR_DEVICE bool multiply_add(u128& total, u32 factor, u32 addend)
{
    const u64 low = u64(total), high = u64(total >> 64);
    if (high == 0 && low < u64(1) << 49) {
        total = low * factor + addend;
        return true;
    }
    const u128 lower = u128(low) * factor + addend;
    const u128 upper = u128(high) * factor + u64(lower >> 64);
    total = upper << 64 | u64(lower);
    return upper >> 63 == 0;
}

// A numeric's content from `at` to `end`, in units of the last place of its type.
HR_DEVICE bool numeric(u64 (&out)[2], const u8* page, u32 at, u32 end, const Step& step)
{
    if (end - at < 2) return false;
    const u32 header = half_at(page, at);
    bool negative = header >> 14 == 1;
    i32 exponent;
    if (header >> 14 == 3) return false;
    if (header >> 14 == 2) {
        negative = (header & 0x2000) != 0;
        exponent = i32(header & 0x7f) - i32((header & 0x40) << 1);
        at += 2;
    } else {
        if (end - at < 4) return false;
        exponent = i16(half_at(page, at + 2));
        at += 4;
    }
    if ((end - at) % 2 != 0) return false;
    // The power of ten that the digit at hand counts, in units of the last place.
    exponent = 4 * exponent + step.scale;
    u128 total = 0;
    for (; at < end; at += 2, exponent -= 4) {
        const u32 digit = half_at(page, at);
        if (digit >= 10000) return false;
        // Only the digit that the last place cuts is kept in part.
        u32 cut = 1;
        for (i32 place = exponent; place < 0 && cut < 10000; ++place) cut *= 10;
        if (digit % cut != 0 || !multiply_add(total, 10000 / cut, digit / cut)) return false;
    }
    const i32 zeros = exponent + 4 < 40 ? exponent + 4 : 40;
    for (i32 zero = 0; zero < zeros; ++zero) {
        if (!multiply_add(total, 10, 0)) return false;
    }
    if (total >= (u128(step.limit[0]) | u128(step.limit[1]) << 64)) return false;
    if (negative) total = -total;
    out[0] = u64(total), out[1] = u64(total >> 64);
    return true;
}

// Whether the page has UTF-8 from `at` to `end`, as table 3-7 of the Unicode standard says.
HR_DEVICE bool is_utf8(const u8* page, u32 at, u32 end)
{
    while (at < end) {
        if (end - at >= 4 && (word_at(page, at) & 0x80808080u) == 0) {
            at += 4;
            continue;
        }
        const u32 first = page[at++];
        if (first < 0x80) continue;
        if (first < 0xc2 || first > 0xf4) return false;
        const u32 more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
        if (end - at < more) return false;
        // Neither longer than need be, nor a surrogate, nor beyond the last character.
        const u32 low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        const u32 high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        if (page[at] < low || page[at] > high) return false;
        for (u32 k = 1; k < more; ++k) {
            if ((page[at + k] & 0xc0u) != 0x80) return false;
        }
        at += more;
    }
    return true;
}

// Where texts lie: in the page and behind the steps; they are looked at when the page is judged.
struct TextPlace { u64 page, steps; bool is_judged; };

// The value at `at`, as its column has it; what is wrong with it, if anything is.
HR_DEVICE u32 convert(u64 (&out)[2], const u8* page, u32 at, u32 end, const Step& step, const TextPlace& place)
{
    constexpr i64 epoch_days = 10957, day_us = 86400000000ll;
    constexpr i64 last_us = Limits<i64>::max - epoch_days * day_us, last_day = Limits<i32>::max - epoch_days;
    out[1] = 0;
    switch (step.value) {
    case BOOL:
        out[0] = page[at];
        return out[0] <= 1 ? NONE : VALUE;
    case PLAIN_2: out[0] = half_at(page, at); return NONE;
    case PLAIN_4: out[0] = word_at(page, at); return NONE;
    case PLAIN_8: out[0] = double_at(page, at); return NONE;
    case DATE: {
        const i32 days = i32(word_at(page, at));
        out[0] = u32(days) + u32(epoch_days);
        return days != Limits<i32>::min && days <= last_day ? NONE : VALUE;
    }
    case TIME: {
        const i64 time = i64(out[0] = double_at(page, at));
        return time >= 0 && time < day_us ? NONE : VALUE;
    }
    case TIMESTAMP: {
        const i64 time = i64(double_at(page, at));
        out[0] = u64(time) + u64(epoch_days * day_us);
        return time != Limits<i64>::min && time <= last_us ? NONE : VALUE;
    }
    default: {
        const u32 first = page[at];
        if (first == 1) return EXTERNAL;
        if (!(first & 1u) && first & 2u) return COMPRESSED;
        at += first & 1u ? 1 : 4;
        if (step.value == NUMERIC) return numeric(out, page, at, end, step) ? NONE : VALUE;
        out[0] = place.page + at, out[1] = end - at;
        return place.is_judged && !is_utf8(page, at, end) ? VALUE : NONE;
    }
    }
}

HR_DEVICE void store(void* values, u32 row, u32 value, const u64 (&from)[2])
{
    switch (value) {
    case PLAIN_2: static_cast<u16*>(values)[row] = u16(from[0]); break;
    case PLAIN_4:
    case DATE: static_cast<u32*>(values)[row] = u32(from[0]); break;
    case NUMERIC:
    case TEXT:
        static_cast<u64*>(values)[2 * u64(row)] = from[0];
        static_cast<u64*>(values)[2 * u64(row) + 1] = from[1];
        break;
    default: static_cast<u64*>(values)[row] = from[0];
    }
}

// Sets bits of a bitmap, a row a lane, whose rows begin at `warp_row` and are at most as many as
// lanes: two words of it. All lanes of the warp come here.
HR_DEVICE void set_bits(void* bitmap, u32 warp_row, u32 row, bool is_set)
{
    u32* words = static_cast<u32*>(bitmap) + warp_row / 32;
    const bool is_next = row / 32 != warp_row / 32;
    const u32 bit = is_set ? 1u << row % 32 : 0;
    const u32 here = __reduce_or_sync(~0u, is_next ? 0 : bit), next = __reduce_or_sync(~0u, is_next ? bit : 0);
    if (lane() != 0) return;
    if (here != 0) atomicOr(words, here);
    if (next != 0) atomicOr(words + 1, next);
}

// Where the parts of the shared memory lie.
struct Shared {
    u8* page;
    // Bits of 8 bytes of the page that tuples take, and of line pointers of tuples.
    u32 *units, *normal;
    u32* sums;
    u32 *any, *line_flaw, *tuple_flaw;

    HR_DEVICE Shared(u8* memory, u32 block_bytes)
    {
        page = memory;
        units = reinterpret_cast<u32*>(memory + block_bytes + 16);
        normal = units + block_bytes / 256;
        sums = normal + block_bytes / 128;
        any = sums + 32, line_flaw = any + 1, tuple_flaw = any + 2;
    }

    HR_DEVICE void load(const Params& p, const Page& from)
    {
        const u32 words = p.block_bytes / 256 + p.block_bytes / 128;
        for (u32 word = threadIdx.x; word < words; word += BLOCK_THREADS) units[word] = 0;
        if (threadIdx.x == 0) *any = 0, *line_flaw = *tuple_flaw = NONE;
        u32 bits = 0;
#pragma unroll 4
        for (u32 at = threadIdx.x * 16; at < p.block_bytes; at += BLOCK_THREADS * 16) {
            struct alignas(16) Words { u32 word[4]; } words;
            stream_words(words.word, reinterpret_cast<const void*>(from.address + at));
            bits |= words.word[0] | words.word[1] | words.word[2] | words.word[3];
            *reinterpret_cast<Words*>(page + at) = words;
        }
        __syncthreads();
        if (bits != 0) atomicOr(any, 1u);
        if (p.checksums) {
            for (u32 c = threadIdx.x; c < 32; c += BLOCK_THREADS) sums[c] = checksum_column(page, c, p.block_bytes);
        }
        __syncthreads();
    }

    // What is wrong with the page as a whole: the same for all threads.
    HR_DEVICE Verdict page_flaw(const Params& p, const Page& from) const
    {
        // A new page is one in all of its bytes.
        if (*any == 0) return {NEW, 0};
        if (p.checksums) {
            u32 hash = from.block;
            for (u32 c = 0; c < 32; ++c) hash ^= sums[c];
            const u32 stored = half_at(page, 8), computed = hash % 65535u + 1;
            if (stored != computed) return {CHECKSUM, stored | computed << 16};
        }
        return {header_flaw(page, p.block_bytes), 0};
    }

    // Looks at all line pointers; how many there are.
    HR_DEVICE u32 check_lines(const Params& p)
    {
        const u32 lines = (half_at(page, 12) - HEADER_BYTES) / 4;
        for (u32 line = threadIdx.x; line < lines; line += BLOCK_THREADS) {
            const bool is_sound = line_is_sound(page, line, lines, p.block_bytes, normal, units);
            if (!is_sound) atomicMin(line_flaw, (line + 1) << 8 | LINE);
        }
        __syncthreads();
        return lines;
    }

    // Walks the tuples of as many line pointers as there are threads, from `first_line` on.
    HR_DEVICE void walk(const Params& p, const Page& from, u32 first_line)
    {
        const u32 first_row = from.first_row;
        const TextPlace place = {from.address, reinterpret_cast<u64>(p.steps), p.verdicts != nullptr};
        const u32 line = first_line + threadIdx.x;
        const u32 warp_row = first_row + tuples_before(normal, line - lane());
        const u32 row = first_row + tuples_before(normal, line);
        bool is_alive = normal[line / 32] >> line % 32 & 1u;
        u32 flaw = NONE;
        Tuple tuple;
        if (is_alive && !tuple.open(page, Pointer(page, line), p.attributes)) {
            flaw = (line + 1) << 8 | TUPLE;
            is_alive = false;
        }
        for (u32 k = 0; k < p.step_count; ++k) {
            const Step& step = p.steps[k];
            u64 value[2] = {0, 0};
            bool is_null = true;
            if (is_alive) {
                u32 wrong = NONE;
                is_null = take(wrong, value, tuple, step, k, line, place);
                if (wrong != NONE) {
                    flaw = wrong;
                    is_alive = false;
                }
            }
            if (p.verdicts != nullptr || !(step.flags & WANTED)) continue;
            const Column column = p.columns[step.column];
            const bool is_there = is_alive && !is_null;
            void* values = reinterpret_cast<void*>(column.values);
            if (step.value == BOOL) set_bits(values, warp_row, row, is_there && value[0] != 0);
            else if (is_alive) store(values, row, step.value, value);
            if (column.validity != 0) set_bits(reinterpret_cast<void*>(column.validity), warp_row, row, is_there);
        }
        if (flaw != NONE) atomicMin(tuple_flaw, flaw);
    }

    // Takes the next attribute of a tuple; whether it is NULL, and what is wrong with it.
    HR_DEVICE bool take(u32& wrong, u64 (&value)[2], Tuple& tuple, const Step& step, u32 attribute, u32 line,
                        const TextPlace& place)
    {
        const bool is_older = attribute >= tuple.attributes;
        if (is_older && step.flags & HAS_MISSING) {
            if (step.flags & WANTED && step.flags & OPAQUE_MISSING) wrong = attribute << 8 | VALUE;
            value[0] = step.missing[0] + (step.value == TEXT ? place.steps : 0), value[1] = step.missing[1];
            return false;
        }
        if (is_older || tuple.is_null(page, attribute)) {
            if (step.flags & NOT_NULL) wrong = (line + 1) << 8 | TUPLE;
            return true;
        }
        const u32 start = tuple.step(page, step.length, step.align_mask);
        if (start == 0) {
            wrong = (line + 1) << 8 | TUPLE;
        } else if (step.flags & WANTED) {
            const u32 code = convert(value, page, start, tuple.at, step, place);
            if (code != NONE) wrong = attribute << 8 | code;
        }
        return false;
    }
};

} // namespace hr

HR_KERNEL headrace_pages(HR_CONSTANT Params p)
{
    HR_DYNAMIC_SHARED(memory);
    hr::Shared shared(memory, p.block_bytes);
    for (u32 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const Page from = p.pages[number];
        if (p.verdicts == nullptr && from.first_row == NOT_TAKEN) continue;
        // The page before is done with.
        __syncthreads();
        shared.load(p, from);
        Verdict verdict = shared.page_flaw(p, from);
        if (verdict.flaw == NONE) {
            const u32 lines = shared.check_lines(p);
            verdict = {*shared.line_flaw, hr::tuples_before(shared.normal, lines)};
            if (verdict.flaw == NONE && verdict.detail > p.rows_max) verdict.flaw = lines << 8 | TUPLE;
            if (verdict.flaw == NONE) {
                for (u32 line = 0; line < lines; line += BLOCK_THREADS) shared.walk(p, from, line);
                __syncthreads();
                verdict.flaw = *shared.tuple_flaw;
            }
        }
        if (threadIdx.x == 0 && p.verdicts != nullptr) p.verdicts[number] = verdict;
    }
}
