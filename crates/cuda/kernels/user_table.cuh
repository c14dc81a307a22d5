// What functions of users get that have a whole table: columns, and where rows are written.
#pragma once
#include "headrace/user.cuh"

namespace hr {

// In place of a value of a row that is written.
struct Null {};

// A column of numbers, dates or moments. `valid` has a byte for each row, if the column has NULLs.
template <typename T>
struct Column {
    const T* values;
    const u8* valid;
    HR_DEVICE bool is_null(u64 row) const { return valid != nullptr && valid[row] == 0; }
    HR_DEVICE T operator[](u64 row) const { return values[row]; }
};

// A column of texts, whose offsets have one more than the rows, or of bytes of one length.
struct BytesColumn {
    const u8* values;
    const u8* valid;
    const u64* offsets;
    u32 bytes;
    HR_DEVICE bool is_null(u64 row) const { return valid != nullptr && valid[row] == 0; }
    HR_DEVICE Bytes operator[](u64 row) const
    {
        if (offsets == nullptr) return Bytes(Text(values + row * bytes, bytes));
        return Bytes(Text(values + offsets[row], u32(offsets[row + 1] - offsets[row])));
    }
};

// A column of lists of so many floats.
template <typename Float>
struct FloatsColumn {
    const u8* values;
    const u8* valid;
    u32 bytes;
    HR_DEVICE bool is_null(u64 row) const { return valid != nullptr && valid[row] == 0; }
    HR_DEVICE Floats<Float> operator[](u64 row) const { return Floats<Float>(Text(values + row * bytes, bytes)); }
};

// Where a column is written: bytes of values, and a byte for each row that is not NULL. Both are zero at first.
struct Written {
    u8* values;
    u8* valid;
};

// A value that is written, or NULL.
template <typename T>
struct Cell {
    T value;
    bool is_there;
    HR_DEVICE Cell(T given) : value(given), is_there(true) {}
    HR_DEVICE Cell(Null) : value(), is_there(false) {}
    HR_DEVICE void write(const Written& to, u64 row) const
    {
        if (is_there) reinterpret_cast<T*>(to.values)[row] = value;
        to.valid[row] = is_there;
    }
};

// Bytes of one length. Those of another are NULL.
template <u32 BYTES>
struct BytesCell {
    const u8* from;
    HR_DEVICE BytesCell(const u8* given) : from(given) {}
    HR_DEVICE BytesCell(const Bytes& given) : from(given.size == BYTES ? given.data : nullptr) {}
    HR_DEVICE BytesCell(Null) : from(nullptr) {}
    HR_DEVICE void write(const Written& to, u64 row) const
    {
        for (u32 byte = 0; from != nullptr && byte < BYTES; ++byte) to.values[row * BYTES + byte] = from[byte];
        to.valid[row] = from != nullptr;
    }
};

// So many floats: an array of them, or a list of a column. A list of another length is NULL.
template <typename Float, u32 ITEMS>
struct FloatsCell {
    const u8* from;
    HR_DEVICE FloatsCell(const Float* given) : from(reinterpret_cast<const u8*>(given)) {}
    HR_DEVICE FloatsCell(const Floats<Float>& given) : from(given.size == ITEMS ? given.row.at : nullptr) {}
    HR_DEVICE FloatsCell(Null) : from(nullptr) {}
    HR_DEVICE void write(const Written& to, u64 row) const
    {
        Float* out = reinterpret_cast<Float*>(to.values) + row * ITEMS;
        const Float* in = reinterpret_cast<const Float*>(from);
        for (u32 item = 0; from != nullptr && item < ITEMS; ++item) out[item] = in[item];
        to.valid[row] = from != nullptr;
    }
};

// A place among the rows that are emitted. Lanes that come together take theirs together.
HR_DEVICE u64 next_place(u64* emitted)
{
    const u32 together = __activemask();
    const u32 before = __popc(together & ((1u << lane()) - 1u));
    u64 first = 0;
    if (before == 0) first = atomicAdd(emitted, u64(__popc(together)));
    return __shfl_sync(together, first, __ffs(together) - 1) + before;
}

} // namespace hr
