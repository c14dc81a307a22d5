// Regular expressions: deterministic automata with registers, as crates/columns/src/automaton.rs lays out their bytes.
#pragma once
#include "headrace/text.cuh"

namespace hr {

constexpr u32 NO_PLACE = ~0u;
// What a move takes that is no register's; anything else is NO_PLACE.
constexpr u32 MOVES_HERE = 255;

struct Automaton {
    const u32* header;
    HR_DEVICE explicit Automaton(const u32* words) : header(words) {}
    HR_DEVICE u32 width() const { return header[0]; }
    HR_DEVICE u32 start() const { return header[3]; }
    // 0 is NULL, 1 the empty text, 2 the whole one.
    HR_DEVICE u32 unmatched() const { return header[4]; }
    HR_DEVICE const u8* classes() const { return reinterpret_cast<const u8*>(header + 8); }
    HR_DEVICE const u32* steps() const { return header + 8 + 64; }
    HR_DEVICE const u32* lists() const { return steps() + header[1]; }
    HR_DEVICE const u16* moves() const { return reinterpret_cast<const u16*>(lists() + header[2] + 1); }
};

// The moves of a step that has led to `here`. Registers are compared with each number: an array with a place that is
// known when it runs lies in memory instead of registers.
template <u32 REGISTERS>
HR_DEVICE void move_registers(u32 (&registers)[REGISTERS], const Automaton& automaton, u32 step, u32 here)
{
    const u32 list = step >> 16;
    if (list == 0) return;
    for (u32 i = automaton.lists()[list]; i < automaton.lists()[list + 1]; ++i) {
        const u32 move = automaton.moves()[i], to = move & 255u, from = move >> 8;
        u32 value = from == MOVES_HERE ? here : NO_PLACE;
#pragma unroll
        for (u32 r = 0; r < REGISTERS; ++r) value = from == r ? registers[r] : value;
#pragma unroll
        for (u32 r = 0; r < REGISTERS; ++r) registers[r] = to == r ? value : registers[r];
    }
}

// Whether the text has a match; the registers say where the wanted part is.
template <u32 REGISTERS>
HR_DEVICE bool find(u32 (&registers)[REGISTERS], const Automaton& automaton, const Text& text)
{
    static_assert(REGISTERS >= 3, "begin, end and match");
    registers[0] = 0;
    registers[1] = text.bytes;
#pragma unroll
    for (u32 i = 2; i < REGISTERS; ++i) registers[i] = NO_PLACE;
    const u32 width = automaton.width();
    const u8* const classes = automaton.classes();
    const u32* const steps = automaton.steps();
    u32 step = automaton.start(), word = 0;
    for (u32 at = 0; at < text.bytes; ++at) {
        move_registers(registers, automaton, step, at);
        if ((step & 0xffffu) == 0) return registers[2] != NO_PLACE;
        if (at % 4 == 0) word = text_word(text, at / 4);
        step = steps[(step & 0xffffu) * width + classes[word & 255u]];
        word >>= 8;
    }
    move_registers(registers, automaton, step, text.bytes);
    move_registers(registers, automaton, steps[(step & 0xffffu) * width + width - 1], text.bytes);
    return registers[2] != NO_PLACE;
}

template <u32 REGISTERS>
HR_DEVICE bool matches(const u32* automaton, const Text& text)
{
    u32 registers[REGISTERS];
    return find(registers, Automaton(automaton), text);
}

// The part of a text that an automaton finds; false: NULL.
template <u32 REGISTERS>
HR_DEVICE bool matched_part(const u32* words, const Text& text, Text* out)
{
    const Automaton automaton(words);
    u32 registers[REGISTERS];
    if (!find(registers, automaton, text)) {
        *out = automaton.unmatched() == 2 ? text : Text(text.at, 0);
        return automaton.unmatched() != 0;
    }
    const bool is_part = registers[0] != NO_PLACE && registers[1] != NO_PLACE;
    *out = is_part ? part_of(text, registers[0], registers[1]) : Text(text.at, 0);
    return true;
}

} // namespace hr
