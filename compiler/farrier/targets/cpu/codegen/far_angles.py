"""The reduction of large angles by as many bits of 2 / pi as each needs (M. Payne, R. Hanek,
"Radian reduction for trigonometric functions", 1983).

It is a function of the LLVM module that works on one lane at a time. Vectors that hold a large
angle call it; all others skip it.
"""

from __future__ import annotations

from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.float_code import FloatCode
from farrier.targets.cpu.codegen.text import suffix

# The fraction bits of 2 / pi in words of 64, most significant first, behind a word of zeros for
# small angles. They end 3 words after the first bit that matters for the greatest f64.
_TWO_OVER_PI = (
    0x0, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484,
    0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
)  # fmt: skip


def far_angles(b: Builder, c: FloatCode, near: float) -> str:
    """Declare the function that reduces the angles from `near` on, and return its name.

    It takes a vector of angles x, their reductions r and their quadrants q, and returns r and q
    with the lanes replaced whose |x| >= `near`: |r| <= pi / 4, and NaN for an infinite angle.
    """
    name = f"@farrier.far_angles.{suffix(c.kind)}"
    words = ", ".join(f"i64 {word}" for word in _TWO_OVER_PI)
    count = len(_TWO_OVER_PI)
    b.declarations.update((
        f"@farrier.two_over_pi = private unnamed_addr constant [{count} x i64] [{words}], align 64",
        "declare i64 @llvm.fshl.i64(i64, i64, i64)",
        "declare i128 @llvm.ctlz.i128(i128, i1)",
        "declare double @llvm.fabs.f64(double)",
        _FAR_ANGLE,
        _each_lane(name, c, near),
    ))  # fmt: skip
    return name


def _each_lane(name: str, c: FloatCode, near: float) -> str:
    """Return the text of the function over all lanes."""
    both = f"{{ {c.kind}, {c.bits} }}"
    params = f"{c.kind} %x, {c.kind} %r0, {c.bits} %q0"
    lines = [f"define internal {both} {name}({params}) noinline nounwind {{"]
    r, q = "%r0", "%q0"
    for lane in range(c.lanes):
        at, n = f"i64 {lane}", lane
        if c.lanes == 1:
            lines.append("  %x0 = fadd double %x, -0.0")
        else:
            lines.append(f"  %x{n} = extractelement {c.kind} %x, {at}")
        lines += [
            f"  %s{n} = call double @llvm.fabs.f64(double %x{n})",
            f"  %f{n} = fcmp oge double %s{n}, {near:.1f}",
            f"  %a{n} = call {{ double, i64 }} @farrier.far_angle(double %x{n})",
            f"  %b{n} = extractvalue {{ double, i64 }} %a{n}, 0",
            f"  %c{n} = extractvalue {{ double, i64 }} %a{n}, 1",
        ]
        if c.lanes == 1:
            lines.append("  %r1 = select i1 %f0, double %b0, double %r0")
            lines.append("  %q1 = select i1 %f0, i64 %c0, i64 %q0")
        else:
            for part, kind, element, vector, new in (
                ("r", c.kind, "double", r, "b"),
                ("q", c.bits, "i64", q, "c"),
            ):
                lines += [
                    f"  %o{part}{n} = extractelement {kind} {vector}, {at}",
                    f"  %n{part}{n} = select i1 %f{n}, {element} %{new}{n}, {element} %o{part}{n}",
                    f"  %{part}{n + 1} = insertelement {kind} {vector}, "
                    f"{element} %n{part}{n}, {at}",
                ]
        r, q = f"%r{n + 1}", f"%q{n + 1}"
    lines += [
        f"  %v = insertvalue {both} poison, {c.kind} {r}, 0",
        f"  %w = insertvalue {both} %v, {c.bits} {q}, 1",
        f"  ret {both} %w",
        "}",
    ]
    return "\n".join(lines)


# With x = m 2^p, this multiplies m by the 192 bits of 2 / pi below the weight of 4 quadrants: the
# bits above only add full turns. The product's first two bits are the quadrant, the others its
# fraction, which is rounded to the nearest quadrant. At least 2^-62 of a quadrant remains (Muller,
# chapter 11), so 64 bits of the remainder are exact.
_FAR_ANGLE = """define internal { double, i64 } @farrier.far_angle(double %x) noinline nounwind {
  %code = bitcast double %x to i64
  %high = lshr i64 %code, 52
  %field = and i64 %high, 2047
  %low = and i64 %code, 4503599627370495
  %m = or i64 %low, 4503599627370496
  %wide.m = zext i64 %m to i128
  %first = sub i64 %field, 1013
  %inside = icmp ult i64 %first, 1034
  %start = select i1 %inside, i64 %first, i64 0
  %word = lshr i64 %start, 6
  %bit = and i64 %start, 63
  %p0 = getelementptr i64, ptr @farrier.two_over_pi, i64 %word
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %p3 = getelementptr i64, ptr %p0, i64 3
  %w0 = load i64, ptr %p0, align 8
  %w1 = load i64, ptr %p1, align 8
  %w2 = load i64, ptr %p2, align 8
  %w3 = load i64, ptr %p3, align 8
  %f0 = call i64 @llvm.fshl.i64(i64 %w0, i64 %w1, i64 %bit)
  %f1 = call i64 @llvm.fshl.i64(i64 %w1, i64 %w2, i64 %bit)
  %f2 = call i64 @llvm.fshl.i64(i64 %w2, i64 %w3, i64 %bit)
  %wide.f1 = zext i64 %f1 to i128
  %wide.f2 = zext i64 %f2 to i128
  %last = mul i128 %wide.m, %wide.f2
  %carry2 = lshr i128 %last, 64
  %mid = mul i128 %wide.m, %wide.f1
  %mid.sum = add i128 %mid, %carry2
  %carry1 = lshr i128 %mid.sum, 64
  %carry = trunc i128 %carry1 to i64
  %top.product = mul i64 %m, %f0
  %top = add i64 %top.product, %carry
  %wide.top = zext i64 %top to i128
  %top.shifted = shl i128 %wide.top, 64
  %mid.word = trunc i128 %mid.sum to i64
  %mid.wide = zext i64 %mid.word to i128
  %turn = or i128 %top.shifted, %mid.wide
  %half = shl i128 1, 125
  %rounded = add i128 %turn, %half
  %quadrant = lshr i128 %rounded, 126
  %whole = shl i128 %quadrant, 126
  %part = sub i128 %turn, %whole
  %is.negative = icmp slt i128 %part, 0
  %opposite = sub i128 0, %part
  %size = select i1 %is.negative, i128 %opposite, i128 %part
  %zeros = call i128 @llvm.ctlz.i128(i128 %size, i1 false)
  %normal = shl i128 %size, %zeros
  %leading = lshr i128 %normal, 65
  %mantissa = trunc i128 %leading to i64
  %number = sitofp i64 %mantissa to double
  %lost = trunc i128 %zeros to i64
  %exponent = sub i64 962, %lost
  %exponent.bits = shl i64 %exponent, 52
  %scale = bitcast i64 %exponent.bits to double
  %fraction = fmul double %number, %scale
  %angle = fmul double %fraction, 0x3FF921FB54442D18
  %below = fneg double %angle
  %signed = select i1 %is.negative, double %below, double %angle
  %count = trunc i128 %quadrant to i64
  %is.minus = icmp slt i64 %code, 0
  %mirrored = fneg double %signed
  %r = select i1 %is.minus, double %mirrored, double %signed
  %minus.count = sub i64 0, %count
  %q = select i1 %is.minus, i64 %minus.count, i64 %count
  %nothing = fsub double %x, %x
  %kept = fadd double %r, %nothing
  %v = insertvalue { double, i64 } poison, double %kept, 0
  %w = insertvalue { double, i64 } %v, i64 %q, 1
  ret { double, i64 } %w
}"""
