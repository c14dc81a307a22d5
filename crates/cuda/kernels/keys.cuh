// Keys as a few words: those of hashed groups, and of builds with texts, with NULLs that are equal, or with more than 16 bytes.
//
// Keys that are texts come first, each of TEXT_KEY_WORDS words. A short text lies in them, then zeros, and
// in the last byte its length and 1, or 0 for NULL. Of a long text the words are: where it lies, its hash,
// its length, and LONG_TEXT in the last byte. Other keys follow side by side; the byte behind one is 1 where it is NULL.
#pragma once
#include "headrace/probe.cuh"
#include "headrace/text.cuh"

namespace hr {

constexpr u32 TEXT_KEY_BYTES = 32, TEXT_KEY_WORDS = 4;
constexpr u64 LONG_TEXT = 255;

// The bits of a float as a key: both zeros are one, and all NaNs are.
HR_DEVICE u32 float_key(f32 value) { return value != value ? 0x7fc00000u : bits_as<u32>(value + 0.0f); }
HR_DEVICE u64 float_key(f64 value) { return value != value ? 0x7ff8000000000000ull : bits_as<u64>(value + 0.0); }

// As a number that orders as floats do, NaN above all others.
HR_DEVICE i64 float_order(f64 value)
{
    const u64 bits = float_key(value);
    return bits >> 63 ? i64(~bits ^ 1ull << 63) : i64(bits);
}

HR_DEVICE u64 text_hash(const Text& text)
{
    u64 hash = text.bytes;
    for (u32 word = 0; 4 * word < text.bytes; ++word) hash = mix(hash ^ text_word(text, word));
    return hash;
}

// Sets four words, which are 0, to a text; of a long one the first is its address.
HR_DEVICE void set_text_key(u64* key, const Text& text)
{
    if (text.bytes >= TEXT_KEY_BYTES) {
        key[0] = reinterpret_cast<u64>(text.at);
        key[1] = text_hash(text);
        key[2] = text.bytes;
        key[3] = LONG_TEXT << 56;
        return;
    }
#pragma unroll
    for (u32 word = 0; word < TEXT_KEY_BYTES / 4; ++word) {
        if (4 * word < text.bytes) key[word / 2] |= u64(text_word(text, word)) << (32 * (word & 1u));
    }
    key[TEXT_KEY_WORDS - 1] |= u64(text.bytes + 1) << 56;
}

// Whether a word of a key says where one of its first `texts` keys lies.
HR_DEVICE bool is_place(const u64* key, u32 texts, u32 word)
{
    return word < texts * TEXT_KEY_WORDS && word % TEXT_KEY_WORDS == 0 && key[word + TEXT_KEY_WORDS - 1] >> 56 == LONG_TEXT;
}
template <u32 TEXTS, u32 WORDS> HR_DEVICE bool is_place(const u64 (&key)[WORDS], u32 word) { return is_place(key, TEXTS, word); }

// A key's long text as its row has it.
template <u32 WORDS> HR_DEVICE Text row_text(const u64 (&key)[WORDS], u32 word)
{
    return Text(reinterpret_cast<const u8*>(key[word]), u32(key[word + 2]));
}

// Keys whose places alone differ have one hash.
HR_DEVICE u64 key_hash(const u64* key, u32 words, u32 texts)
{
    u64 hash = 0;
    for (u32 word = words; word-- > 0;) hash = mix((is_place(key, texts, word) ? 0 : key[word]) ^ hash);
    return hash;
}
template <u32 TEXTS, u32 WORDS>
HR_DEVICE u64 key_hash(const u64 (&key)[WORDS])
{
    u64 hash = 0;
#pragma unroll
    for (u32 word = WORDS; word-- > 0;) hash = mix((is_place<TEXTS>(key, word) ? 0 : key[word]) ^ hash);
    return hash;
}

// Build row of a key whose first TEXTS keys are texts, or EMPTY. `keys` has the words of each row; their long texts begin
// behind `texts`.
template <u32 TEXTS, u32 WORDS>
HR_DEVICE u32 find(const u32* rows, const u64* keys, const u8* texts, u32 slot_mask, const u64 (&key)[WORDS])
{
    u32 slot = u32(key_hash<TEXTS>(key)) & slot_mask;
    while (true) {
        const u32 row = rows[slot];
        if (row == EMPTY) return row;
        const u64* other = keys + u64(row) * WORDS;
        bool is_same = true;
#pragma unroll
        for (u32 word = 0; word < WORDS; ++word) is_same = is_same && (is_place<TEXTS>(key, word) || other[word] == key[word]);
#pragma unroll
        for (u32 word = 0; word < TEXTS * TEXT_KEY_WORDS; word += TEXT_KEY_WORDS) {
            if (is_same && is_place<TEXTS>(key, word)) {
                is_same = same_text(Text(texts + other[word], u32(other[word + 2])), row_text(key, word));
            }
        }
        if (is_same) return row;
        slot = (slot + 1) & slot_mask;
    }
}

} // namespace hr
