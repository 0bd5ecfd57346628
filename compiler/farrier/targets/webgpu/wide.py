"""WGSL functions for 64-bit integers, which WGSL lacks: pairs of words, the lower word first.

They return the same values as the IR's operators: sums wrap around, quotients are rounded down,
conversions from float saturate, and conversions to float round to nearest.
"""

from __future__ import annotations

from farrier.ir.expr import BinaryOp

PAIR = "vec2<u32>"

OPERATORS = {
    BinaryOp.ADD: "wide_add({0}, {1})",
    BinaryOp.SUB: "wide_add({0}, wide_negative({1}))",
    BinaryOp.MUL: "wide_multiply({0}, {1})",
    BinaryOp.DIV: "wide_divide({0}, {1})",
    BinaryOp.MOD: "wide_remainder({0}, {1})",
    BinaryOp.MIN: "wide_least({0}, {1})",
    BinaryOp.MAX: "wide_most({0}, {1})",
    BinaryOp.BIT_AND: "({0} & {1})",
    BinaryOp.BIT_OR: "({0} | {1})",
    BinaryOp.BIT_XOR: "({0} ^ {1})",
    BinaryOp.SHL: "wide_shift_left({0}, {1})",
    BinaryOp.SHR: "wide_shift_right({0}, {1})",
}
COMPARISONS = {
    BinaryOp.LT: "wide_less({0}, {1})",
    BinaryOp.LE: "!wide_less({1}, {0})",
    BinaryOp.EQ: "all({0} == {1})",
    BinaryOp.NE: "any({0} != {1})",
}

TEXTS = (
    # A number that 32 bits cannot hold becomes the nearest that they can.
    """
fn narrow(x: vec2<u32>) -> i32 {
  let low = bitcast<i32>(x.x);
  let high = bitcast<i32>(x.y);
  return select(select(2147483647, -2147483648, high < 0), low, high == (low >> 31u));
}
""",
    """
fn wide(x: i32) -> vec2<u32> {
  return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u));
}
""",
    """
fn wide_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
""",
    """
fn wide_negative(a: vec2<u32>) -> vec2<u32> {
  return wide_add(~a, vec2<u32>(1u, 0u));
}
""",
    """
fn wide_is_negative(a: vec2<u32>) -> bool {
  return bitcast<i32>(a.y) < 0;
}
""",
    """
fn wide_magnitude(a: vec2<u32>) -> vec2<u32> {
  return select(a, wide_negative(a), wide_is_negative(a));
}
""",
    """
fn wide_multiply(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x * b.x, mul_high_u32(a.x, b.x) + a.x * b.y + a.y * b.x);
}
""",
    """
fn wide_less(a: vec2<u32>, b: vec2<u32>) -> bool {
  return bitcast<i32>(a.y) < bitcast<i32>(b.y) || (a.y == b.y && a.x < b.x);
}
""",
    """
fn wide_least(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(b, a, wide_less(a, b));
}
""",
    """
fn wide_most(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, wide_less(a, b));
}
""",
    # The quotient of magnitudes and the remainder, bit by bit.
    """
fn wide_long_division(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  var quotient = vec2<u32>(0u, 0u);
  var rest = vec2<u32>(0u, 0u);
  for (var bit = 63; bit >= 0; bit--) {
    let place = u32(bit & 31);
    let digit = (select(a.x, a.y, bit > 31) >> place) & 1u;
    rest = vec2<u32>((rest.x << 1u) | digit, (rest.y << 1u) | (rest.x >> 31u));
    if (rest.y > b.y || (rest.y == b.y && rest.x >= b.x)) {
      rest = wide_add(rest, wide_negative(b));
      quotient |= select(vec2<u32>(1u << place, 0u), vec2<u32>(0u, 1u << place), bit > 31);
    }
  }
  return vec4<u32>(quotient, rest);
}
""",
    """
fn wide_divide(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let both = wide_long_division(wide_magnitude(a), wide_magnitude(b));
  let quotient = vec2<u32>(both.x, both.y);
  let is_up = (both.z | both.w) != 0u;
  let below = wide_negative(wide_add(quotient, vec2<u32>(select(0u, 1u, is_up), 0u)));
  return select(quotient, below, wide_is_negative(a) != wide_is_negative(b));
}
""",
    """
fn wide_remainder(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return wide_add(a, wide_negative(wide_multiply(wide_divide(a, b), b)));
}
""",
    """
fn wide_shift_left(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let by = b.x & 31u;
  let carried = select(a.x >> ((32u - by) & 31u), 0u, by == 0u);
  let near = vec2<u32>(a.x << by, (a.y << by) | carried);
  let shifted = select(near, vec2<u32>(0u, a.x << by), (b.x & 32u) != 0u);
  return select(shifted, vec2<u32>(0u, 0u), b.y != 0u || b.x > 63u);
}
""",
    """
fn wide_shift_right(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let by = b.x & 31u;
  let high = bitcast<i32>(a.y);
  let sign = bitcast<u32>(high >> 31u);
  let carried = select(a.y << ((32u - by) & 31u), 0u, by == 0u);
  let shifted = bitcast<u32>(high >> by);
  let near = vec2<u32>((a.x >> by) | carried, shifted);
  let moved = select(near, vec2<u32>(shifted, sign), (b.x & 32u) != 0u);
  return select(moved, vec2<u32>(sign, sign), b.y != 0u || b.x > 63u);
}
""",
    # The largest f32 below 2^63 is 9223371487098961920; 2^-32 and products by 2^32 are exact.
    """
fn wide_of_float(x: f32) -> vec2<u32> {
  let size = trunc(min(abs(x), 9223371487098961920.0));
  let high = floor(size * 2.3283064365386963e-10);
  let magnitude = vec2<u32>(u32(size - high * 4294967296.0), u32(high));
  let finite = select(magnitude, wide_negative(magnitude), x < 0.0);
  let above = select(finite, vec2<u32>(0xffffffffu, 0x7fffffffu), x >= 9223372036854775808.0);
  let below = select(above, vec2<u32>(0u, 0x80000000u), x <= -9223372036854775808.0);
  return select(below, vec2<u32>(0u, 0u), is_nan(x));
}
""",
    # The upper 24 bits from the first that is set, rounded to the nearest, of two to the even one;
    # a carry out of them goes into the exponent.
    """
fn float_of_wide(a: vec2<u32>) -> f32 {
  let size = wide_magnitude(a);
  let zeros = select(countLeadingZeros(size.y), 32u + countLeadingZeros(size.x), size.y == 0u);
  let bits = wide_shift_left(size, vec2<u32>(zeros, 0u));
  let rest = bits.y & 255u;
  let is_odd = (bits.y & 256u) != 0u;
  let is_up = rest > 128u || (rest == 128u && (bits.x != 0u || is_odd));
  let rounded = (bits.y >> 8u) + select(0u, 1u, is_up);
  let number = bitcast<f32>(((189u - zeros) << 23u) + rounded);
  return select(select(number, -number, wide_is_negative(a)), 0.0, all(a == vec2<u32>(0u, 0u)));
}
""",
)


def constant(value: int) -> str:
    """Return the WGSL expression of an i64 constant, as a pair of words."""
    return f"{PAIR}({value & 0xFFFFFFFF}u, {(value >> 32) & 0xFFFFFFFF}u)"
