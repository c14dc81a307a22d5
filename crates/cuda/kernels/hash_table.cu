// Fills the hash table of a build: each key, with the first row that has it. `find` in `probe.cuh` and `keys.cuh` use the same
// hashes. Three launches, one behind the other: keys that the host has as bytes are made words; they are entered; narrow ones are
// put beside their slots, so that a look-up reads both at once.
#ifndef BLOCK_THREADS
#define BLOCK_THREADS 256
#endif
#define BLOCKS_PER_SM 1
#include "headrace/keys.cuh"

constexpr u64 PACK = 0, ENTER = 1, SETTLE = 2;

// A key within the words of all: its first byte, and its bytes, 0 for a text. A NULL is the byte behind; only builds that keep
// their NULLs have any.
struct KeyPart {
    u64 at, bytes;
};

struct Params {
    u64 launch;
    // All EMPTY at first. ENTER puts entries here, SETTLE replaces them by rows.
    u32* slots;
    // The words of each slot's key, of narrow keys.
    u64* slot_keys;
    u64 slot_mask;
    // Keys by entry. Null: the key of an entry is `base + entry`.
    u64* keys;
    u64 base;
    // The bits of a key of one word that count, unless it is wide.
    u64 key_mask;
    // Of a key.
    u64 words;
    // Wide keys are as `keys.cuh` has them, their first `text_keys` are texts. They are found by entry, which is a row.
    u64 is_wide;
    u64 text_keys;
    // Rows by entry; EMPTY: the entry is skipped. Null: the row of an entry is its number.
    const u32* rows;
    u64 entries;
    // What PACK reads: keys as bytes, one behind the other (`key.rs` of `headrace_columns`), where they begin, and their parts.
    const u8* encoded;
    const u64* offsets;
    const KeyPart* parts;
    u64 part_count;
    // 1 where bytes are not those of such keys.
    u32* broken;
};

struct Key {
    u64 low, high;
};

HR_DEVICE Key key_of(const Params& p, u64 entry)
{
    if (!p.keys) return {(p.base + entry) & p.key_mask, 0};
    if (p.words == 1) return {p.keys[entry] & p.key_mask, 0};
    return {p.keys[2 * entry], p.keys[2 * entry + 1]};
}

HR_DEVICE u64 number_of(const u8* bytes, u64 count)
{
    u64 number = 0;
    for (u64 byte = 0; byte < count; ++byte) number |= u64(bytes[byte]) << 8 * byte;
    return number;
}

// A text's place is where it lies in the bytes of all keys.
HR_DEVICE void pack_text(const Params& p, u64* words, const hr::Text& text)
{
    hr::set_text_key(words, text);
    if (text.bytes >= hr::TEXT_KEY_BYTES) words[0] = u64(text.at - p.encoded);
}

HR_DEVICE void pack(const Params& p, u64 entry)
{
    const u8 *at = p.encoded + p.offsets[entry], *end = p.encoded + p.offsets[entry + 1];
    u64* key = p.keys + entry * p.words;
    bool is_sound = true;
    for (u64 word = 0; word < p.words; ++word) key[word] = 0;
    for (u64 number = 0; number < p.part_count && is_sound; ++number) {
        const KeyPart part = p.parts[number];
        is_sound = at < end;
        if (is_sound && *at++ != 0) {
            if (part.bytes > 0) key[(part.at + part.bytes) / 8] |= 1ull << (part.at + part.bytes) % 8 * 8;
            continue;
        }
        const u64 fixed = part.bytes == 0 ? 4 : part.bytes;
        is_sound = is_sound && u64(end - at) >= fixed;
        if (!is_sound) break;
        if (part.bytes > 0) {
            for (u64 byte = 0; byte < fixed; ++byte) key[(part.at + byte) / 8] |= u64(at[byte]) << (part.at + byte) % 8 * 8;
            at += fixed;
            continue;
        }
        const u64 length = number_of(at, 4);
        at += 4;
        is_sound = u64(end - at) >= length;
        if (is_sound) pack_text(p, key + part.at / 8, hr::Text(at, u32(length)));
        at += length;
    }
    if (!is_sound || at != end) *p.broken = 1;
}

HR_DEVICE bool same_key(const Params& p, u64 a, u64 b)
{
    if (!p.is_wide) {
        const Key key = key_of(p, a), other = key_of(p, b);
        return key.low == other.low && key.high == other.high;
    }
    const u64 *key = p.keys + a * p.words, *other = p.keys + b * p.words;
    for (u32 word = 0; word < p.words; ++word) {
        if (key[word] != other[word] && !hr::is_place(key, u32(p.text_keys), word)) return false;
    }
    for (u32 word = 0; word < p.text_keys * hr::TEXT_KEY_WORDS; word += hr::TEXT_KEY_WORDS) {
        if (!hr::is_place(key, u32(p.text_keys), word)) continue;
        const u32 bytes = u32(key[word + 2]);
        if (!hr::same_text(hr::Text(p.encoded + key[word], bytes), hr::Text(p.encoded + other[word], bytes))) return false;
    }
    return true;
}

HR_DEVICE u64 hash_of(const Params& p, u64 entry)
{
    if (p.is_wide) return hr::key_hash(p.keys + entry * p.words, u32(p.words), u32(p.text_keys));
    const Key key = key_of(p, entry);
    return p.words == 1 ? hr::mix(key.low) : hr::mix(key.low ^ hr::mix(key.high));
}

HR_DEVICE void enter(const Params& p, u64 entry)
{
    if (p.rows && p.rows[entry] == hr::EMPTY) return;
    u64 slot = u32(hash_of(p, entry)) & p.slot_mask;
    while (true) {
        const u32 other = atomicCAS(p.slots + slot, hr::EMPTY, u32(entry));
        if (other == hr::EMPTY) return;
        if (same_key(p, entry, other)) {
            // Whichever of a key's entries lies here, it has that key.
            if (u32(entry) < other) atomicMin(p.slots + slot, u32(entry));
            return;
        }
        slot = (slot + 1) & p.slot_mask;
    }
}

HR_DEVICE void settle(const Params& p, u64 slot)
{
    const u32 entry = p.slots[slot];
    if (entry == hr::EMPTY) return;
    const Key key = key_of(p, entry);
    p.slot_keys[slot * p.words] = key.low;
    if (p.words == 2) p.slot_keys[2 * slot + 1] = key.high;
    if (p.rows) p.slots[slot] = p.rows[entry];
}

HR_KERNEL headrace_hash_table(HR_CONSTANT Params p)
{
    const u64 step = u64(gridDim.x) * BLOCK_THREADS, first = u64(blockIdx.x) * BLOCK_THREADS + threadIdx.x;
    const u64 end = p.launch == SETTLE ? p.slot_mask + 1 : p.entries;
    for (u64 at = first; at < end; at += step) {
        if (p.launch == PACK) pack(p, at);
        else if (p.launch == ENTER) enter(p, at);
        else settle(p, at);
    }
}
