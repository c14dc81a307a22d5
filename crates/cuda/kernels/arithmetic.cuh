// SQL arithmetic, comparison and conversion: checked, wrapping, and in the total order of
// floats (-0 = 0, NaN equals NaN and is greater than every other value).
#pragma once
#include "headrace/types.cuh"

namespace hr {

// `out` is the wrapped result; the answer is whether it is exact.
template <typename T> HR_DEVICE bool narrow(i128 wide, T* out)
{
    *out = T(wide);
    return i128(*out) == wide;
}
template <typename T> struct Small { static constexpr bool value = sizeof(T) <= 4; };

template <typename T> HR_DEVICE bool add_checked(T a, T b, T* out)
{
    if constexpr (Small<T>::value) {
        const i64 wide = i64(a) + i64(b);
        *out = T(wide);
        return i64(*out) == wide;
    } else {
        return narrow(i128(a) + i128(b), out);
    }
}
template <> HR_DEVICE bool add_checked<i128>(i128 a, i128 b, i128* out)
{
    *out = i128(u128(a) + u128(b));
    return ((a ^ *out) & (b ^ *out)) >= 0;
}
template <typename T> HR_DEVICE bool subtract_checked(T a, T b, T* out)
{
    if constexpr (Small<T>::value) {
        const i64 wide = i64(a) - i64(b);
        *out = T(wide);
        return i64(*out) == wide;
    } else {
        return narrow(i128(a) - i128(b), out);
    }
}
template <> HR_DEVICE bool subtract_checked<i128>(i128 a, i128 b, i128* out)
{
    *out = i128(u128(a) - u128(b));
    return ((a ^ b) & (a ^ *out)) >= 0;
}
// u32 * u32 does not fit i64, so unsigned values multiply as u64.
template <typename T> HR_DEVICE bool multiply_checked(T a, T b, T* out)
{
    if constexpr (Small<T>::value && T(-1) < T(0)) {
        const i64 wide = i64(a) * i64(b);
        *out = T(wide);
        return i64(*out) == wide;
    } else if constexpr (Small<T>::value) {
        const u64 wide = u64(a) * u64(b);
        *out = T(wide);
        return u64(*out) == wide;
    } else if constexpr (T(-1) < T(0)) {
        return narrow(i128(a) * i128(b), out);
    } else {
        const u128 wide = u128(a) * u128(b);
        *out = T(wide);
        return u128(*out) == wide;
    }
}
template <> HR_DEVICE bool multiply_checked<i128>(i128 a, i128 b, i128* out)
{
    const bool negative = (a < 0) != (b < 0);
    const u128 x = a < 0 ? u128(0) - u128(a) : u128(a);
    const u128 y = b < 0 ? u128(0) - u128(b) : u128(b);
    const u64 xl = u64(x), xh = u64(x >> 64), yl = u64(y), yh = u64(y >> 64);
    *out = i128(u128(a) * u128(b));
    if (xh != 0 && yh != 0) return false;
    const u128 cross = xh != 0 ? u128(xh) * yl : u128(yh) * xl;
    if (cross >> 64 != 0) return false;
    const u128 low = u128(xl) * yl;
    const u128 product = low + (cross << 64);
    if (product < low) return false;
    const u128 limit = u128(1) << 127;
    return negative ? product <= limit : product < limit;
}
template <typename T> HR_DEVICE bool negate_checked(T a, T* out)
{
    return subtract_checked<T>(T(0), a, out);
}

template <typename T> struct Unsigned { typedef u64 type; };
template <> struct Unsigned<i128> { typedef u128 type; };
template <typename T> HR_DEVICE T add_wrapping(T a, T b) { typedef typename Unsigned<T>::type U; return T(U(a) + U(b)); }
template <typename T> HR_DEVICE T subtract_wrapping(T a, T b) { typedef typename Unsigned<T>::type U; return T(U(a) - U(b)); }
template <typename T> HR_DEVICE T multiply_wrapping(T a, T b) { typedef typename Unsigned<T>::type U; return T(U(a) * U(b)); }
template <typename T> HR_DEVICE T negate_wrapping(T a) { return subtract_wrapping<T>(T(0), a); }

// The smallest value divided by -1 does not fit its type.
template <typename T> HR_DEVICE bool divides_over(T a, T b)
{
    if constexpr (T(-1) < T(0)) return b == T(-1) && a == T(Limits<T>::min);
    else return false;
}
// Callers have excluded b = 0; a quotient that does not fit wraps.
template <typename T> HR_DEVICE T divide(T a, T b) { return divides_over(a, b) ? a : T(a / b); }
template <typename T> HR_DEVICE T modulo(T a, T b) { return divides_over(a, b) ? T(0) : T(a % b); }
HR_DEVICE f32 modulo(f32 a, f32 b) { return fmodf(a, b); }
HR_DEVICE f64 modulo(f64 a, f64 b) { return fmod(a, b); }
// Without headers: infinity less itself is no number, and no number equals itself.
template <typename T> HR_DEVICE bool is_finite(T a) { return a - a == a - a; }
template <typename T> HR_DEVICE bool is_infinite(T a) { return a == a && !is_finite(a); }

template <typename T> HR_DEVICE bool equal(T a, T b) { return a == b; }
template <typename T> HR_DEVICE bool less(T a, T b) { return a < b; }
HR_DEVICE bool equal(f32 a, f32 b) { return a == b || (a != a && b != b); }
HR_DEVICE bool equal(f64 a, f64 b) { return a == b || (a != a && b != b); }
HR_DEVICE bool less(f32 a, f32 b) { return a < b || (a == a && b != b); }
HR_DEVICE bool less(f64 a, f64 b) { return a < b || (a == a && b != b); }

// Sign of `a * a_factor - b * b_factor` for powers of ten of which one is 1; exact.
HR_DEVICE i32 compare_scaled(i128 a, i128 a_factor, i128 b, i128 b_factor)
{
    i128 x, y;
    if (!multiply_checked<i128>(a, a_factor, &x)) return a < 0 ? -1 : 1;
    if (!multiply_checked<i128>(b, b_factor, &y)) return b < 0 ? 1 : -1;
    return x < y ? -1 : x > y ? 1 : 0;
}

// 10^exponent for 0 <= exponent <= 38.
HR_DEVICE i128 power_of_ten(u32 exponent)
{
    i128 value = 1;
    for (u32 i = 0; i < exponent; ++i) value *= 10;
    return value;
}

// Whether a decimal has at most as many digits as `limit = 10^precision` allows.
HR_DEVICE bool has_digits(i128 value, i128 limit) { return value < limit && value > -limit; }

// value / factor, halves away from zero.
HR_DEVICE i128 divide_rounding(i128 value, i128 factor)
{
    const i128 quotient = value / factor;
    const i128 rest = value % factor;
    const i128 half = factor / 2;
    if (rest >= half && half > 0) return quotient + 1;
    if (rest <= -half && half > 0) return quotient - 1;
    return quotient;
}

// Absolute values. A decimal's digits are claimed: its smallest value wraps.
HR_DEVICE f32 magnitude(f32 a) { return fabsf(a); }
HR_DEVICE f64 magnitude(f64 a) { return fabs(a); }
HR_DEVICE i128 magnitude_wrapping(i128 a) { return a < 0 ? negate_wrapping<i128>(a) : a; }
template <typename T> HR_DEVICE i64 bit_count(T a)
{
    const u64 bits = u64(a) & (~0ull >> (64 - 8 * sizeof(T)));
    return __popc(u32(bits)) + __popc(u32(bits >> 32));
}
template <typename T> HR_DEVICE bool magnitude_checked(T a, T* out)
{
    *out = a;
    return a >= T(0) || negate_checked<T>(a, out);
}

// Whole numbers next to a value; of decimals, `unit` is one.
HR_DEVICE f32 trunc_float(f32 a) { return truncf(a); }
HR_DEVICE f64 trunc_float(f64 a) { return trunc(a); }
HR_DEVICE f32 rint_float(f32 a) { return rintf(a); }
HR_DEVICE f64 rint_float(f64 a) { return rint(a); }
HR_DEVICE f32 floor_float(f32 a) { return floorf(a); }
HR_DEVICE f64 floor_float(f64 a) { return floor(a); }
HR_DEVICE f32 ceil_float(f32 a) { return ceilf(a); }
HR_DEVICE f64 ceil_float(f64 a) { return ceil(a); }
HR_DEVICE i128 floor_decimal(i128 value, i128 unit)
{
    const i128 rest = value % unit;
    return subtract_wrapping<i128>(value, rest < 0 ? rest + unit : rest);
}
HR_DEVICE i128 ceil_decimal(i128 value, i128 unit)
{
    const i128 below = floor_decimal(value, unit);
    return below == value ? value : add_wrapping<i128>(below, unit);
}
// To the nearest multiple of 1 / unit, halves away from zero.
HR_DEVICE f32 rounded(f32 a) { return roundf(a); }
HR_DEVICE f64 rounded(f64 a) { return round(a); }
template <typename T> HR_DEVICE T round_float(T value, T unit) { return rounded(value * unit) / unit; }

// Integer to integer; the answer is whether the value fits.
template <typename To, typename From> HR_DEVICE bool convert_integer(From from, To* to)
{
    *to = To(from);
    return From(*to) == from && (from < From(0)) == (*to < To(0));
}

// Float to integer, towards zero; NaN and values outside do not fit. `low` is the smallest
// value, `high` the first above the largest; both are exact as floats.
template <typename To, typename From> HR_DEVICE bool convert_float(From from, From low, From high, To* to)
{
    const From below = low - From(1);
    const bool fits = (below == low ? from >= low : from > below) && from < high;
    *to = fits ? To(from) : To(0);
    return fits;
}

// value * factor, rounded, as a decimal of fewer digits than `limit`; 1.7e38 is within 128 bits.
HR_DEVICE bool float_to_decimal(f64 value, f64 factor, i128 limit, i128* to)
{
    const f64 unscaled = rounded(value * factor);
    const bool fits = magnitude(unscaled) < 1.7e38;
    *to = fits ? i128(unscaled) : i128(0);
    return fits && has_digits(*to, limit);
}

} // namespace hr
