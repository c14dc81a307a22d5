// Texts: bytes that lie anywhere in device memory, those of columns and of constants alike. Words of
// four bytes at a time are read where they lie, none that has no byte of the text.
#pragma once
#include "headrace/load.cuh"

namespace hr {

// As a column of views has it; a NULL's bytes are none.
struct alignas(16) Text {
    const u8* at;
    u32 bytes;
    Text() = default;
    HR_DEVICE Text(const u8* first, u32 count) : at(first), bytes(count) {}
    explicit HR_DEVICE Text(int) : at(nullptr), bytes(0) {}
};

// The length of bytes that offsets point into, for a column of views.
constexpr u64 VIEWS = ~0ull;

// Texts of N rows from `row` on, which are views, or offsets into `length` bytes, the first of which
// they call `base`. The bits of rows whose offsets lie elsewhere; their texts are empty.
template <u32 N>
HR_DEVICE u32 load_texts(Text (&out)[N], const void* values, const u8* bytes, u64 length, u32 base, u32 row, u32 rows)
{
    u32 outside = 0;
    if (length == VIEWS) {
        const Text* views = static_cast<const Text*>(values) + row;
#pragma unroll
        for (u32 r = 0; r < N; ++r) out[r] = row + r < rows ? views[r] : Text(0);
        return outside;
    }
    // A row ends where the next one begins.
    u32 offsets[N];
    load_rows(offsets, values, row, rows + 1);
    const u32 last = row + N <= rows ? row_value<u32>(values, row + N) : 0;
#pragma unroll
    for (u32 r = 0; r < N; ++r) {
        // Offsets before the base wrap around, and are beyond any length.
        const u32 from = offsets[r] - base, to = (r + 1 < N ? offsets[r + 1 < N ? r + 1 : r] : last) - base;
        const bool is_sound = row + r < rows && from <= to && to <= length;
        out[r] = is_sound ? Text(bytes + from, to - from) : Text(0);
        outside |= u32(!is_sound) << r;
    }
    return outside;
}

// Four bytes of a text from 4 * `word` on, the first lowest; zeros behind its end, before which they
// must begin.
HR_DEVICE u32 text_word(const Text& text, u32 word)
{
    const u64 address = reinterpret_cast<u64>(text.at) + 4ull * word;
    const u32 skew = u32(address & 3u), left = text.bytes - 4 * word;
    const u32* words = reinterpret_cast<const u32*>(address - skew);
    const u32 high = skew + (left < 4 ? left : 4) > 4 ? words[1] : 0;
    const u32 value = funnel_right(words[0], high, skew * 8);
    return left >= 4 ? value : value & ((1u << 8 * left) - 1u);
}

// The first eight bytes, zeros behind the end, as a number that orders as they do.
HR_DEVICE i64 first_bytes(const Text& text)
{
    const u32 first = text.bytes > 0 ? text_word(text, 0) : 0, next = text.bytes > 4 ? text_word(text, 1) : 0;
    const auto turned = [](u32 word) {
        return word >> 24 | (word >> 8 & 0xff00u) | (word << 8 & 0xff0000u) | word << 24;
    };
    return i64((u64(turned(first)) << 32 | turned(next)) ^ 1ull << 63);
}

HR_DEVICE bool same_text(const Text& a, const Text& b)
{
    if (a.bytes != b.bytes) return false;
    for (u32 word = 0; 4 * word < a.bytes; ++word) {
        if (text_word(a, word) != text_word(b, word)) return false;
    }
    return true;
}

// Below, at or above 0, as texts are in the order of their bytes.
HR_DEVICE i32 compare_texts(const Text& a, const Text& b)
{
    const u32 both = a.bytes < b.bytes ? a.bytes : b.bytes;
    for (u32 word = 0; 4 * word < both; ++word) {
        const u32 left = text_word(a, word), right = text_word(b, word);
        if (left != right) return byte_perm(left, 0, 0x0123) < byte_perm(right, 0, 0x0123) ? -1 : 1;
    }
    return a.bytes == b.bytes ? 0 : a.bytes < b.bytes ? -1 : 1;
}

// A text of a table: offsets from the table's begin, one more than texts, then the texts.
HR_DEVICE Text table_text(const u32* table, u32 number)
{
    return Text(reinterpret_cast<const u8*>(table) + table[number], table[number + 1] - table[number]);
}

// Whether a sorted table has the text.
HR_DEVICE bool in_texts(const u32* list, u32 count, const Text& text)
{
    u32 low = 0, high = count;
    while (low < high) {
        const u32 middle = (low + high) / 2;
        const i32 order = compare_texts(table_text(list, middle), text);
        if (order == 0) return true;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return false;
}

// The place of the next character.
HR_DEVICE u32 next_character(const Text& text, u32 at)
{
    do ++at;
    while (at < text.bytes && (text.at[at] & 0xc0u) == 0x80u);
    return at;
}

// Where the character begins that is so many behind the one at `at`; the end, if there are fewer.
HR_DEVICE u32 character_behind(const Text& text, u32 at, u32 characters)
{
    for (; characters > 0 && at < text.bytes; --characters) at = next_character(text, at);
    return at;
}

// Where the character begins that is so many before the end; the beginning, if there are fewer.
HR_DEVICE u32 character_before_end(const Text& text, u32 characters)
{
    u32 at = text.bytes;
    for (; characters > 0 && at > 0; --characters) {
        do --at;
        while (at > 0 && (text.at[at] & 0xc0u) == 0x80u);
    }
    return at;
}

HR_DEVICE Text part_of(const Text& text, u32 from, u32 to) { return Text(text.at + from, to - from); }

// Up to `count` characters from number `from` on, the first being 1; false for a negative count. The end is that
// of the text where 32 bits do not say it.
HR_DEVICE bool substring(const Text& text, i32 from, i32 count, Text* out)
{
    const u32 first = from > 1 ? u32(from) - 1u : 0;
    const u32 begin = character_behind(text, 0, first);
    const i64 end = i64(from) + count;
    const u32 beyond = end > 1 ? u32(end) - 1u : 0;
    const bool is_open = end > i64(Limits<i32>::max);
    *out = part_of(text, begin, is_open ? text.bytes : character_behind(text, begin, beyond > first ? beyond - first : 0));
    return count >= 0;
}

HR_DEVICE Text substring_from(const Text& text, i32 from)
{
    return part_of(text, character_behind(text, 0, from > 1 ? u32(from) - 1u : 0), text.bytes);
}

HR_DEVICE u32 magnitude_of(i32 number) { return number < 0 ? 0u - u32(number) : u32(number); }

// So many characters of the beginning, or of the end; all but so many of the other side, if the number is negative.
HR_DEVICE Text first_characters(const Text& text, i32 number)
{
    const u32 count = magnitude_of(number);
    return part_of(text, 0, number < 0 ? character_before_end(text, count) : character_behind(text, 0, count));
}

HR_DEVICE Text last_characters(const Text& text, i32 number)
{
    const u32 count = magnitude_of(number);
    const u32 from = number < 0 ? character_behind(text, 0, count) : character_before_end(text, count);
    return part_of(text, from, text.bytes);
}

HR_DEVICE bool begins_with(const Text& text, const Text& start)
{
    return start.bytes <= text.bytes && same_text(Text(text.at, start.bytes), start);
}

// The number of the character where the second text first occurs; 0 if it does not.
HR_DEVICE i32 position_of(const Text& text, const Text& wanted)
{
    i32 number = 1;
    for (u32 at = 0; at + wanted.bytes <= text.bytes; at = next_character(text, at), ++number) {
        if (same_text(Text(text.at + at, wanted.bytes), wanted)) return number;
        if (at == text.bytes) break;
    }
    return 0;
}

HR_DEVICE bool has_character(const Text& set, const Text& character)
{
    for (u32 at = 0; at < set.bytes;) {
        const u32 next = next_character(set, at);
        if (same_text(part_of(set, at, next), character)) return true;
        at = next;
    }
    return false;
}

// Without the characters at an end that occur in the set.
HR_DEVICE Text without_start(const Text& text, const Text& set)
{
    u32 at = 0;
    while (at < text.bytes) {
        const u32 next = next_character(text, at);
        if (!has_character(set, part_of(text, at, next))) break;
        at = next;
    }
    return part_of(text, at, text.bytes);
}

HR_DEVICE Text without_end(const Text& text, const Text& set)
{
    u32 end = text.bytes;
    while (end > 0) {
        const Text before(text.at, end);
        const u32 last = character_before_end(before, 1);
        if (!has_character(set, part_of(before, last, end))) break;
        end = last;
    }
    return part_of(text, 0, end);
}

// A pattern's items are bytes, any one character, or any number of them.
constexpr u16 LIKE_ONE = 256, LIKE_ANY = 257;

// Whether all of the text is as a pattern of `count` items. It comes back only to the last item of
// any number: a later one can do whatever an earlier one could.
HR_DEVICE bool like(const Text& text, const u16* pattern, u32 count)
{
    u32 at = 0, item = 0, any = ~0u, retry = 0;
    while (true) {
        if (item == count) {
            if (at == text.bytes) return true;
        } else if (pattern[item] == LIKE_ANY) {
            if (item + 1 == count) return true;
            any = item++, retry = at;
            continue;
        } else if (at < text.bytes && (pattern[item] == LIKE_ONE || pattern[item] == text.at[at])) {
            at = pattern[item++] == LIKE_ONE ? next_character(text, at) : at + 1;
            continue;
        }
        if (any == ~0u || retry >= text.bytes) return false;
        at = retry = next_character(text, retry);
        item = any + 1;
    }
}

HR_DEVICE i32 character_length(const Text& text)
{
    u32 others = 0;
    for (u32 word = 0; 4 * word < text.bytes; ++word) {
        const u32 bytes = text_word(text, word);
        others += u32(__popc(bytes & ~(bytes << 1) & 0x80808080u));
    }
    return i32(text.bytes - others);
}

} // namespace hr
