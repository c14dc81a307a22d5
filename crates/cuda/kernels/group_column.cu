// One column of groups as another pipeline reads it: keys from where they lie side by side, results from
// running values. A thread makes HR_ROWS rows of it, which are a byte of validity.
//
// If `order` asks for it, the column holds numbers in place of values: 64 bits each, in the wanted order.
//
// The kernel sets `misfit` for a result that does not fit its type, or takes more than 128 bits to compute. No value
// of the column may be used then: the host finishes the groups, or reports the overflow.
#ifndef BLOCK_THREADS
#define BLOCK_THREADS 256
#endif
#define BLOCKS_PER_SM 1
#define HR_ROWS 8u
#include "headrace/groups.cuh"

// `group_columns.rs` numbers them.
constexpr u32 VALUES = 0, BITS = 1, TEXT_KEYS = 2, TEXT_EXTREMES = 3, FLOAT_EXTREMES = 4, FLOATS = 5, TOTALS = 6, MEANS = 7, FLOAT_MEANS = 8, FLOAT_KEYS = 9;

// How numbers are ordered, if they are: all together.
constexpr u32 ORDERED = 1, DESCENDING = 2, NULLS_FIRST = 4, UNSIGNED = 8;

struct Params {
    // Of the first group, and the bytes from a group's entry to the next.
    const u8* entries;
    u64 stride;
    // How many values went into each group's entry: none is NULL. Null where every entry has a value.
    const u64* counts;
    // The byte behind an entry's first that is not 0 where a key is NULL; 0 where none can be.
    u64 null_at;
    // The buffer of the texts that groups keep.
    const u8* texts;
    // Null where only `misfit` is asked for.
    u8* values;
    // Null where none can be NULL.
    u8* validity;
    u32* misfit;
    u64 rows;
    alignas(8) u32 form;
    // Of an entry, and of a value of the column.
    alignas(8) u32 entry_bytes;
    alignas(8) u32 value_bytes;
    // 0: values are made.
    alignas(8) u32 order;
    // Between which a total or a mean must lie.
    u64 min_low, min_high, max_low, max_high;
    // A mean multiplies its total by this factor before the division, and the largest total that may be multiplied.
    u64 factor_low, factor_high, factored_max_low, factored_max_high;
};

HR_DEVICE i128 joined(u64 low, u64 high) { return i128(u128(low) | u128(high) << 64); }

// A total of 8, 16 or 24 bytes; false where it takes more than 128 bits.
HR_DEVICE bool read_total(const u8* entry, u32 bytes, i128* total)
{
    const u64* words = reinterpret_cast<const u64*>(entry);
    if (bytes == 8) {
        *total = i128(i64(words[0]));
        return true;
    }
    *total = joined(words[0], words[1]);
    return bytes == 16 || words[2] == (*total < 0 ? ~0ull : 0ull);
}

template <typename T> HR_DEVICE void put(const Params& p, u64 row, T value)
{
    if (p.values != nullptr) reinterpret_cast<T*>(p.values)[row] = value;
}

HR_DEVICE void put_bytes(const Params& p, u64 row, const u8* from, bool is_there)
{
    switch (p.value_bytes) {
    case 1: put(p, row, is_there ? *from : u8(0)); break;
    case 2: put(p, row, is_there ? u16(from[0] | from[1] << 8) : u16(0)); break;
    case 4: put(p, row, is_there ? u32(from[0]) | u32(from[1]) << 8 | u32(from[2]) << 16 | u32(from[3]) << 24 : 0u); break;
    case 8: {
        u64 value = 0;
        if (is_there) memcpy(&value, from, 8);
        put(p, row, value);
        break;
    }
    default: {
        // Sixteen bytes begin at a word.
        const u64* words = reinterpret_cast<const u64*>(from);
        put(p, row, is_there ? joined(words[0], words[1]) : i128(0));
    }
    }
}

// A total, or a mean of as many values as there are; false if it is not within its bounds.
HR_DEVICE bool finish_total(const Params& p, const u8* entry, u64 count, i128* total)
{
    if (!read_total(entry, p.entry_bytes, total)) return false;
    if (p.form == MEANS) {
        const i128 most = joined(p.factored_max_low, p.factored_max_high);
        if (*total > most || *total < -most) return false;
        *total = *total * joined(p.factor_low, p.factor_high) / i128(count);
    }
    return *total >= joined(p.min_low, p.min_high) && *total <= joined(p.max_low, p.max_high);
}

HR_DEVICE bool put_total(const Params& p, u64 row, const u8* entry, u64 count)
{
    i128 total;
    if (!finish_total(p, entry, count, &total)) return false;
    if (p.value_bytes == 8) put(p, row, u64(total));
    else put(p, row, total);
    return true;
}

HR_DEVICE hr::Text key_text(const Params& p, const u8* entry)
{
    const u32 last = entry[hr::TEXT_KEY_BYTES - 1];
    if (last == hr::LONG_TEXT) {
        const u64 kept = *reinterpret_cast<const u64*>(entry);
        return hr::Text(p.texts + 4 * (kept >> 32), u32(kept));
    }
    return last == 0 ? hr::Text(0) : hr::Text(entry, last - 1);
}

// The inverse of hr::ordered.
HR_DEVICE f64 unordered(u64 key)
{
    if (key == ~0ull - 1) return hr::bits_as<f64>(0x7ff8000000000000ull);
    return hr::bits_as<f64>(key >> 63 ? key & ~(1ull << 63) : ~key);
}

// A float key of 4 or 8 bytes, which may lie anywhere.
HR_DEVICE f64 float_at(const u8* entry, u32 bytes)
{
    u64 bits = 0;
    for (u32 byte = 0; byte < bytes; ++byte) bits |= u64(entry[byte]) << 8 * byte;
    return bytes == 4 ? f64(hr::bits_as<f32>(u32(bits))) : hr::bits_as<f64>(bits);
}

HR_DEVICE void put_float(const Params& p, u64 row, f64 value)
{
    if (p.value_bytes == 4) put(p, row, f32(value));
    else put(p, row, value);
}

// Unsigned numbers in the order of signed ones. What takes more than 64 bits is as the last of its side: it ties.
HR_DEVICE u64 in_order(i128 value)
{
    const i128 first = hr::Limits<i64>::min, last = hr::Limits<i64>::max;
    const i64 held = i64(value < first ? first : value > last ? last : value);
    return u64(held) ^ 1ull << 63;
}

HR_DEVICE u64 integer_in_order(const Params& p, const u8* entry)
{
    if (p.form == BITS) return u64(*entry != 0);
    if (p.value_bytes == 16) {
        const u64* words = reinterpret_cast<const u64*>(entry);
        return in_order(joined(words[0], words[1]));
    }
    u64 bits = 0;
    for (u32 byte = 0; byte < p.value_bytes; ++byte) bits |= u64(entry[byte]) << 8 * byte;
    if (p.order & UNSIGNED) return bits;
    const u32 unused = 64 - 8 * p.value_bytes;
    return u64(i64(bits << unused) >> unused) ^ 1ull << 63;
}

// Of the float that it becomes.
HR_DEVICE u64 float_in_order(const Params& p, f64 value)
{
    return hr::ordered(p.value_bytes == 4 ? f64(f32(value)) : value);
}

// A number in the order that is wanted: the first are the smallest. Equal values have equal numbers, others may.
HR_DEVICE u64 order_of(const Params& p, u64 row, const u8* entry, bool is_there)
{
    if (!is_there) return p.order & NULLS_FIRST ? 0 : ~0ull;
    u64 number = 0;
    switch (p.form) {
    case VALUES:
    case BITS: number = integer_in_order(p, entry); break;
    case FLOAT_KEYS: number = float_in_order(p, float_at(entry, p.value_bytes)); break;
    case FLOAT_EXTREMES: number = float_in_order(p, unordered(*reinterpret_cast<const u64*>(entry))); break;
    case FLOATS: number = float_in_order(p, *reinterpret_cast<const f64*>(entry)); break;
    case FLOAT_MEANS: number = float_in_order(p, *reinterpret_cast<const f64*>(entry) / f64(p.counts[row])); break;
    default: {
        i128 total = 0;
        finish_total(p, entry, p.counts == nullptr ? 1 : p.counts[row], &total);
        number = in_order(total);
    }
    }
    return p.order & DESCENDING ? ~number : number;
}

HR_KERNEL headrace_group_column(HR_CONSTANT Params p)
{
    bool fits = true;
    const u64 step = u64(gridDim.x) * HR_TILE;
    for (u64 first = (u64(blockIdx.x) * BLOCK_THREADS + threadIdx.x) * HR_ROWS; first < p.rows; first += step) {
        u32 valid = 0, bits = 0;
        for (u32 r = 0; r < HR_ROWS && first + r < p.rows; ++r) {
            const u64 row = first + r;
            const u8* entry = p.entries + row * p.stride;
            bool is_there = p.counts == nullptr || p.counts[row] != 0;
            if (p.null_at != 0) is_there &= entry[p.null_at] == 0;
            if (p.order != 0) {
                put(p, row, order_of(p, row, entry, is_there));
                continue;
            }
            switch (p.form) {
            case VALUES:
            case FLOAT_KEYS: put_bytes(p, row, entry, is_there); break;
            case BITS: bits |= u32(is_there && *entry != 0) << r; break;
            case TEXT_KEYS:
                is_there = entry[hr::TEXT_KEY_BYTES - 1] != 0;
                put(p, row, key_text(p, entry));
                break;
            case TEXT_EXTREMES: {
                const u64 kept = *reinterpret_cast<const u64*>(entry);
                put(p, row, is_there ? hr::Text(p.texts + 4 * (kept >> 32), u32(kept)) : hr::Text(0));
                break;
            }
            case FLOAT_EXTREMES: put_float(p, row, is_there ? unordered(*reinterpret_cast<const u64*>(entry)) : 0.0); break;
            case FLOATS: put_float(p, row, is_there ? *reinterpret_cast<const f64*>(entry) : 0.0); break;
            case FLOAT_MEANS: {
                const f64 total = *reinterpret_cast<const f64*>(entry);
                put_float(p, row, is_there ? total / f64(p.counts[row]) : 0.0);
                break;
            }
            default:
                if (is_there) fits &= put_total(p, row, entry, p.counts == nullptr ? 1 : p.counts[row]);
                else if (p.value_bytes == 8) put(p, row, u64(0));
                else put(p, row, i128(0));
            }
            valid |= u32(is_there) << r;
        }
        if (p.form == BITS && p.order == 0 && p.values != nullptr) p.values[first / HR_ROWS] = u8(bits);
        if (p.validity != nullptr) p.validity[first / HR_ROWS] = u8(valid);
    }
    if (!fits) atomicOr(p.misfit, 1u);
}
