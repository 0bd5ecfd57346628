"""WGSL functions that implement the IR's operators where WGSL's built-ins differ in their results.

A WGSL compiler may assume that no value is NaN or infinite, so NaN is recognized by its bits. WGSL
differs from the IR in other ways as well. Its integer division truncates; its shifts take the
amount modulo the width; its conversions of NaN are undefined; and it does not have erf, expm1 or
log1p. Each function is stored as its text, and refers to the functions that it calls by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from farrier.targets.webgpu import subgroups, wide

# Bits of an f32: all of the exponent, and NaN. `var` keeps a compiler from evaluating them, since a
# constant may not be infinite or NaN.
_TEXTS = (
    """
fn infinity() -> f32 {
  var bits = 0x7f800000u;
  return bitcast<f32>(bits);
}
""",
    """
fn not_a_number() -> f32 {
  var bits = 0x7fc00000u;
  return bitcast<f32>(bits);
}
""",
    """
fn is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}
""",
    """
fn least(a: f32, b: f32) -> f32 {
  return select(min(a, b), not_a_number(), is_nan(a) || is_nan(b));
}
""",
    """
fn most(a: f32, b: f32) -> f32 {
  return select(max(a, b), not_a_number(), is_nan(a) || is_nan(b));
}
""",
    """
fn floor_div(a: i32, b: i32) -> i32 {
  let quotient = a / b;
  return select(quotient, quotient - 1, a % b != 0 && (a < 0) != (b < 0));
}
""",
    """
fn floor_mod(a: i32, b: i32) -> i32 {
  let rest = a % b;
  return select(rest, rest + b, rest != 0 && (a < 0) != (b < 0));
}
""",
    """
fn float_mod(a: f32, b: f32) -> f32 {
  return a - floor(a / b) * b;
}
""",
    # The upper half of a product of 64 bits by products of halves of words, of which no sum exceeds
    # 32 bits.
    """
fn mul_high_u32(a: u32, b: u32) -> u32 {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
  let lower = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
  return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (lower >> 16u);
}
""",
    """
fn mul_high_i32(a: i32, b: i32) -> i32 {
  let whole = bitcast<i32>(mul_high_u32(bitcast<u32>(a), bitcast<u32>(b)));
  return whole - select(0, b, a < 0) - select(0, a, b < 0);
}
""",
    # The largest f32 below 2^31 is 2147483520.
    """
fn to_i32(x: f32) -> i32 {
  let inside = i32(clamp(x, -2147483648.0, 2147483520.0));
  return select(select(inside, 2147483647, x >= 2147483648.0), 0, is_nan(x));
}
""",
    """
fn to_u32(x: f32) -> u32 {
  let inside = u32(clamp(x, 0.0, 4294967040.0));
  return select(select(inside, 4294967295u, x >= 4294967296.0), 0u, is_nan(x));
}
""",
    """
fn byte_of(word: u32, at: i32) -> u32 {
  return (word >> (8u * u32(at & 3))) & 255u;
}
""",
    """
fn signed_byte(byte: u32) -> i32 {
  return i32(byte << 24u) >> 24u;
}
""",
    """
fn with_byte(word: u32, at: i32, byte: u32) -> u32 {
  let shift = 8u * u32(at & 3);
  return (word & ~(255u << shift)) | ((byte & 255u) << shift);
}
""",
    """
fn half_of(word: u32, at: i32) -> u32 {
  return (word >> (16u * u32(at & 1))) & 65535u;
}
""",
    """
fn signed_half(half: u32) -> i32 {
  return i32(half << 16u) >> 16u;
}
""",
    """
fn with_half(word: u32, at: i32, half: u32) -> u32 {
  let shift = 16u * u32(at & 1);
  return (word & ~(65535u << shift)) | ((half & 65535u) << shift);
}
""",
    # To the nearest, of two the even one, which `pack2x16float` need not be. 65520 is nearer to
    # infinity than to the largest f16, below 2^-14 lie multiples of 2^-24, as in f32 from 0.5 on.
    """
fn f16_bits(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let magnitude = bits & 0x7fffffffu;
  let normal = ((magnitude + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u) - 0x1c000u;
  let small = bitcast<u32>(abs(x) + 0.5) - 0x3f000000u;
  let finite = select(normal, small, magnitude < 0x38800000u);
  let large = select(finite, 0x7c00u, magnitude >= 0x477ff000u);
  return select(large, 0x7e00u, magnitude > 0x7f800000u) | ((bits >> 16u) & 0x8000u);
}
""",
    """
fn f16_value(half: u32) -> f32 {
  let magnitude = half & 0x7fffu;
  let sign = (half & 0x8000u) << 16u;
  let small = bitcast<u32>(f32(magnitude) * 5.9604645e-8);
  let finite = select((magnitude << 13u) + 0x38000000u, small, magnitude < 0x400u);
  let large = (magnitude << 13u) | 0x7f800000u;
  return bitcast<f32>(select(finite, large, magnitude >= 0x7c00u) | sign);
}
""",
    """
fn bf16_bits(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  return select((bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u, 0x7fc0u, is_nan(x));
}
""",
    """
fn bf16_value(half: u32) -> f32 {
  return bitcast<f32>(half << 16u);
}
""",
    """
fn shift_left_i32(a: i32, b: i32) -> i32 {
  return select(a << u32(b & 31), 0, b < 0 || b > 31);
}
""",
    """
fn shift_right_i32(a: i32, b: i32) -> i32 {
  return a >> u32(select(b, 31, b < 0 || b > 31));
}
""",
    """
fn shift_left_u32(a: u32, b: u32) -> u32 {
  return select(a << (b & 31u), 0u, b > 31u);
}
""",
    """
fn shift_right_u32(a: u32, b: u32) -> u32 {
  return select(a >> (b & 31u), 0u, b > 31u);
}
""",
    # Near 0 the first seven terms of the series: at 0.35 the next is 6e-9 of the sum.
    """
fn expm1(x: f32) -> f32 {
  let near = x * (1.0 + x * (0.5 + x * (0.16666667 + x * (0.041666668
    + x * (0.008333334 + x * (0.0013888889 + x * 0.0001984127))))));
  return select(exp(x) - 1.0, near, abs(x) < 0.35);
}
""",
    # Near 0 twice the series of atanh(x / (2 + x)): at -0.5 the first term left out is 1e-8.
    """
fn log1p(x: f32) -> f32 {
  let s = x / (2.0 + x);
  let q = s * s;
  let near = 2.0 * s * (1.0 + q * (0.33333334 + q * (0.2 + q * (0.14285715 + q * (0.11111111
    + q * (0.09090909 + q * (0.07692308 + q * 0.06666667)))))));
  return select(log(1.0 + x), near, abs(x) <= 0.5);
}
""",
    """
fn log_(x: f32) -> f32 {
  return select(log(x), log1p(x - 1.0), x >= 0.5 && x <= 1.5);
}
""",
    # The multiple of pi / 2 is taken away in three parts, the first two of few bits, which are
    # exact. Then come the series, whose next terms are below 4e-9 up to pi / 4.
    """
fn sine(x: f32, quadrant: i32) -> f32 {
  let turns = round(x * 0.63661975);
  let r = ((x - turns * 1.5703125) - turns * 0.00048375130) - turns * 7.549790e-8;
  let q = r * r;
  let sine = r * (1.0 + q * (-0.16666667 + q * (0.0083333333 + q * (-0.00019841270
    + q * 0.0000027557319))));
  let cosine = 1.0 + q * (-0.5 + q * (0.041666667 + q * (-0.0013888889 + q * 0.000024801587)));
  let place = (i32(turns) + quadrant) & 3;
  let magnitude = select(sine, cosine, (place & 1) == 1);
  return select(magnitude, -magnitude, place >= 2);
}
""",
    """
fn sin_(x: f32) -> f32 {
  return sine(x, 0);
}
""",
    """
fn cos_(x: f32) -> f32 {
  return sine(x, 1);
}
""",
    """
fn tan_(x: f32) -> f32 {
  return sine(x, 0) / sine(x, 1);
}
""",
    # Above tan(pi / 8) the angle to pi / 4, above 1 that to pi / 2; then the series, whose next
    # term is 1e-7 of the sum.
    """
fn atan_(x: f32) -> f32 {
  let a = abs(x);
  let is_large = a > 1.0;
  let b = select(a, 1.0 / a, is_large);
  let is_far = b > 0.41421357;
  let t = select(b, (b - 1.0) / (b + 1.0), is_far);
  let q = t * t;
  let near = t * (1.0 + q * (-0.33333334 + q * (0.2 + q * (-0.14285715 + q * (0.11111111
    + q * (-0.09090909 + q * (0.07692308 - q * 0.06666667)))))));
  let angle = near + select(0.0, 0.7853982, is_far);
  let result = select(angle, 1.5707964 - angle, is_large);
  return select(result, -result, x < 0.0);
}
""",
    """
fn asin_(x: f32) -> f32 {
  return 2.0 * atan_(x / (1.0 + sqrt((1.0 - x) * (1.0 + x))));
}
""",
    """
fn acos_(x: f32) -> f32 {
  return select(2.0 * atan_(sqrt((1.0 - x) / (1.0 + x))), 3.1415927, x <= -1.0);
}
""",
    """
fn acosh_(x: f32) -> f32 {
  let t = x - 1.0;
  return log1p(t + sqrt(t * (2.0 + t)));
}
""",
    # At 10 the result is 1 in f32.
    """
fn tanh_(x: f32) -> f32 {
  let e = expm1(-2.0 * min(abs(x), 10.0));
  return select(select(1.0, -1.0, x < 0.0) * (-e / (e + 2.0)), not_a_number(), is_nan(x));
}
""",
    """
fn sigmoid(x: f32) -> f32 {
  let e = exp(-abs(x));
  return select(select(1.0, e, x < 0.0) / (1.0 + e), not_a_number(), is_nan(x));
}
""",
    # The series up to 0.5; from there Abramowitz and Stegun 7.1.26, within 1.5e-7.
    """
fn erf(x: f32) -> f32 {
  let a = abs(x);
  let s = x * x;
  let near = x * (1.1283792 + s * (-0.37612638 + s * (0.11283792
    + s * (-0.026866170 + s * (0.0052239776 - s * 0.00085483270)))));
  let t = 1.0 / (1.0 + 0.3275911 * a);
  let tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741
    + t * (-1.453152027 + t * 1.061405429)))) * exp(-min(s, 80.0));
  let far = select(1.0 - tail, tail - 1.0, x < 0.0);
  return select(select(far, near, a < 0.5), not_a_number(), is_nan(x));
}
""",
    """
fn round_tf32(x: f32) -> f32 {
  return select(bitcast<f32>((bitcast<u32>(x) + 0x1000u) & 0xffffe000u), x, is_nan(x));
}
""",
    """
fn gelu(x: f32) -> f32 {
  return 0.5 * x * (1.0 + erf(x * 0.70710677));
}
""",
    """
fn gelu_tanh(x: f32) -> f32 {
  return 0.5 * x * (1.0 + tanh_(0.7978846 * (x + 0.044715 * x * x * x)));
}
""",
    """
fn mish(x: f32) -> f32 {
  return x * tanh_(max(x, 0.0) + log1p(exp(-abs(x))));
}
""",
    """
fn swish(x: f32, alpha: f32) -> f32 {
  return x * sigmoid(alpha * x);
}
""",
    """
fn sinh_(x: f32) -> f32 {
  let e = expm1(abs(x));
  return select(0.5, -0.5, x < 0.0) * (e + e / (e + 1.0));
}
""",
    """
fn asinh_(x: f32) -> f32 {
  let a = abs(x);
  return select(1.0, -1.0, x < 0.0) * log1p(a + a * a / (1.0 + sqrt(a * a + 1.0)));
}
""",
    """
fn atanh_(x: f32) -> f32 {
  return 0.5 * log1p(2.0 * x / (1.0 - x));
}
""",
    """
fn power(x: f32, y: f32) -> f32 {
  let is_whole = floor(y) == y;
  let is_odd = is_whole && (abs(y) < 16777216.0) && (i32(y) & 1) != 0;
  let magnitude = pow(abs(x), y);
  let negative = select(not_a_number(), select(magnitude, -magnitude, is_odd), is_whole);
  let result = select(magnitude, negative, x < 0.0);
  let zero = select(0.0, infinity(), y < 0.0);
  let special = select(result, zero, x == 0.0);
  return select(select(special, not_a_number(), is_nan(x) || is_nan(y)), 1.0, y == 0.0 || x == 1.0);
}
""",
    """
fn whole_power(x: i32, y: i32) -> i32 {
  var result = 1;
  var base = x;
  var left = y;
  while (left > 0) {
    if ((left & 1) != 0) { result *= base; }
    base *= base;
    left >>= 1u;
  }
  return select(result, select(0, select(1, -1, x == -1 && (y & 1) != 0), abs(x) == 1), y < 0);
}
""",
)


def _name(text: str) -> str:
    match = re.search(r"fn (\w+)", text)
    assert match is not None
    return match[1]


_BY_NAME = {_name(text): text.strip() for text in (*_TEXTS, *wide.TEXTS, subgroups.TEXT)}


def functions(names: Iterable[str]) -> str:
    """Return the texts of the functions `names` and of all functions that they call."""
    needed: dict[str, str] = {}

    def add(name: str) -> None:
        if name in _BY_NAME and name not in needed:
            text = _BY_NAME[name]
            for called in re.findall(r"\b(\w+)\(", text.partition("{")[2]):
                add(called)
            needed[name] = text

    for name in sorted(names):
        add(name)
    return "\n\n".join(needed.values())
