"""Convolutions as tensor programs."""

from __future__ import annotations

from farrier.ir import expr as e
from farrier.ir.expr import Buffer, Load, MemoryScope, Select, Var
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from tests.schedule.programs import axes, load, plus, times, total

F32 = DType.F32


def convolution(channels, filters, height, width, side, stride, groups=1):
    """A convolution with padding, and a bias; of groups if there are several."""
    pad = side // 2
    out = [(size + 2 * pad - side) // stride + 1 for size in (height, width)]
    x = Buffer("x", F32, (1, channels, height, width))
    w = Buffer("w", F32, (filters, channels // groups, side, side))
    bias = Buffer("b", F32, (filters,))
    conv = Buffer("c", F32, (1, filters, *out), scope=MemoryScope.WORKSPACE)
    y = Buffer("y", F32, (1, filters, *out))
    at = [
        e.sub(e.add(e.mul(Var(point), stride), Var(tap)), pad)
        for point, tap in (("oy", "kh"), ("ox", "kw"))
    ]
    inside = e.less(-1, at[0])
    for condition in (e.less(at[0], height), e.less(-1, at[1]), e.less(at[1], width)):
        inside = e.both(inside, condition)
    group = e.floordiv(Var("oc"), filters // groups) if groups > 1 else e.index(0)
    channel = e.add(e.mul(group, channels // groups), Var("ic"))
    value = Select(inside, Load(x, (Var("n"), channel, *at)), e.Const(0.0, F32))
    term = times(value, load(w, "oc", "ic", "kh", "kw"))
    points = axes(n=1, oc=filters, oy=out[0], ox=out[1])
    stages = (
        Stage(conv, points, total(axes(ic=channels // groups, kh=side, kw=side), term)),
        Stage(y, points, plus(load(conv, "n", "oc", "oy", "ox"), load(bias, "oc"))),
    )
    return TensorProgram("convolution", (x, w, bias), stages, (y,))
