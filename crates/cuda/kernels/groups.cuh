// Grouping by any keys of a few words: a hash table in global memory that numbers groups in
// the order in which they are first seen. It has room for as many groups as there can be, or warps
// leave before it is full (`groups.rs` says how): it never is, unless recorded bounds were wrong.
//
// A slot is free, being taken, or holds a group number; the group's key lies in `keys`.
//
// Keys are words (`keys.cuh`). The table keeps long texts of its own: those of rows go with their chunk.
#pragma once
#include "headrace/aggregate.cuh"
#include "headrace/keys.cuh"

namespace hr {

constexpr u32 SLOT_FREE = 0xffffffffu, SLOT_TAKEN = 0xfffffffeu, NO_GROUP = 0xfffffffdu, NO_TEXT_ROOM = 0xfffffffcu;

// The bit of the number of groups that says that their texts take more than half of their room.
constexpr u32 TEXTS_FULL = 1u << 31;

// The texts that groups keep: each at a multiple of four bytes, `used` bytes in all.
struct GroupTexts {
    u8* bytes;
    u64* used;
    u64 capacity;
    u32* groups_used;
    HR_DEVICE GroupTexts(u8* first, u64* taken, u64 room, u32* groups)
        : bytes(first), used(taken), capacity(room), groups_used(groups) {}
};

// A text that is kept: its place in words of four bytes, above its length.
typedef u64 KeptText;
constexpr KeptText NO_TEXT = ~0ull;

HR_DEVICE Text kept_text(const GroupTexts& texts, KeptText kept)
{
    return Text(texts.bytes + 4 * (kept >> 32), u32(kept));
}

// Keeps a copy of a text; NO_TEXT where there is no room. Whoever reads it does so behind a fence.
HR_DEVICE KeptText keep_text(const GroupTexts& texts, const Text& text)
{
    const u64 bytes = (u64(text.bytes) + 3) & ~3ull;
    const u64 at = atomicAdd(texts.used, bytes);
    if (at + bytes > texts.capacity / 2) atomicOr(texts.groups_used, TEXTS_FULL);
    if (at + bytes > texts.capacity) return NO_TEXT;
    u32* to = reinterpret_cast<u32*>(texts.bytes + at);
    for (u32 word = 0; 4 * word < text.bytes; ++word) to[word] = text_word(text, word);
    return at / 4 << 32 | text.bytes;
}

// Makes a kept text the smaller (or the larger) of itself and another; false where there is no room.
template <bool IS_MIN>
HR_DEVICE bool extreme_text(KeptText* entry, const Text& text, const GroupTexts& texts)
{
    KeptText held = *static_cast<volatile KeptText*>(entry), own = NO_TEXT;
    while (true) {
        if (held != NO_TEXT) {
            __threadfence();
            const i32 order = compare_texts(text, kept_text(texts, held));
            if (IS_MIN ? order >= 0 : order <= 0) return true;
        }
        if (own == NO_TEXT) {
            own = keep_text(texts, text);
            if (own == NO_TEXT) return false;
            __threadfence();
        }
        const KeptText before = atomicCAS(entry, held, own);
        if (before == held) return true;
        held = before;
    }
}

// The group of a key whose first TEXTS keys are texts.
template <u32 TEXTS, u32 WORDS>
HR_DEVICE u32 group_of(u32* slots, u64* keys, u32* used, u64 capacity, u64 slot_mask, const u64 (&key)[WORDS], const GroupTexts& texts)
{
    u64 slot = key_hash<TEXTS>(key) & slot_mask;
    while (true) {
        const u32 held = *static_cast<volatile u32*>(slots + slot);
        if (held == SLOT_FREE) {
            if (atomicCAS(slots + slot, SLOT_FREE, SLOT_TAKEN) != SLOT_FREE) continue;
            u32 group = atomicAdd(used, 1u) & ~TEXTS_FULL;
            if (group < capacity) {
                u64* own = keys + u64(group) * WORDS;
#pragma unroll
                for (u32 word = 0; word < WORDS; ++word) {
                    own[word] = is_place<TEXTS>(key, word) ? keep_text(texts, row_text(key, word)) : key[word];
                    if (is_place<TEXTS>(key, word) && own[word] == NO_TEXT) group = NO_TEXT_ROOM;
                }
            } else {
                group = NO_GROUP;
            }
            // Whoever sees the number sees the key.
            __threadfence();
            *static_cast<volatile u32*>(slots + slot) = group;
            return group;
        }
        if (held == SLOT_TAKEN) continue;
        if (held == NO_GROUP || held == NO_TEXT_ROOM) return held;
        __threadfence();
        const volatile u64* other = keys + u64(held) * WORDS;
        bool is_same = true;
#pragma unroll
        for (u32 word = 0; word < WORDS; ++word) is_same = is_same && (is_place<TEXTS>(key, word) || other[word] == key[word]);
#pragma unroll
        for (u32 word = 0; word < TEXTS * TEXT_KEY_WORDS; word += TEXT_KEY_WORDS) {
            if (is_same && is_place<TEXTS>(key, word)) is_same = same_text(kept_text(texts, other[word]), row_text(key, word));
        }
        if (is_same) return held;
        slot = (slot + 1) & slot_mask;
    }
}

// The warp's number in the grid.
HR_DEVICE u32 warp_number() { return (blockIdx.x * BLOCK_THREADS + threadIdx.x) / HR_LANES; }

// The run of tiles at which the warp begins: its first, or where it left.
HR_DEVICE u32 begin_run(const u32* left, u32 first) { return left == nullptr ? first : left[warp_number()]; }

// Whether the warp may begin another run: the same for all of its lanes, which see what each of
// them has added. What has no limit is not asked; TEXTS_FULL is above any other.
template <typename Count>
HR_DEVICE bool has_room(const Count* used, Count limit)
{
    if (limit == Count(~Count(0))) return true;
    __syncwarp();
    const Count held = *static_cast<const volatile Count*>(used);
    return __shfl_sync(~0u, held, 0) <= limit;
}

// Writes down the run before which the warp leaves: beyond the last if it is done.
HR_DEVICE void leave_run(u32* leaves, u32 run)
{
    if (leaves != nullptr && first_lane()) leaves[warp_number()] = run;
}

} // namespace hr
