// What functions of users get. Each stands in `namespace user`, under its name.
#pragma once
#include "headrace/text.cuh"

namespace hr {

// Bytes of a text or of a binary value.
struct Bytes {
    const u8* data;
    u32 size;
    explicit HR_DEVICE Bytes(const Text& row) : data(row.at), size(row.bytes) {}
    HR_DEVICE u8 operator[](u32 n) const { return data[n]; }
    HR_DEVICE const u8* begin() const { return data; }
    HR_DEVICE const u8* end() const { return data + size; }
};

// Floats of a list, which may lie at any address.
template <typename Float>
struct Floats {
    const Text row;
    const u32 size;
    explicit HR_DEVICE Floats(const Text& values) : row(values), size(values.bytes / u32(sizeof(Float))) {}
    HR_DEVICE Float operator[](u32 n) const
    {
        const u8* at = row.at + u64(n) * sizeof(Float);
        if (reinterpret_cast<u64>(at) % sizeof(Float) == 0) return *reinterpret_cast<const Float*>(at);
        if constexpr (sizeof(Float) == 4) {
            return bits_as<Float>(text_word(row, n));
        } else {
            return bits_as<Float>(u64(text_word(row, 2 * n)) | u64(text_word(row, 2 * n + 1)) << 32);
        }
    }
};

} // namespace hr

namespace user {

using int8_t = ::i8;
using int16_t = ::i16;
using int32_t = ::i32;
using int64_t = ::i64;
using uint8_t = ::u8;
using uint16_t = ::u16;
using uint32_t = ::u32;
using uint64_t = ::u64;

} // namespace user
