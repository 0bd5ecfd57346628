"""Kernels of open sizes have tiles that take few copies of their code."""

from __future__ import annotations

from farrier.ir.parser import parse_ir
from farrier.space.rules import register_tile
from farrier.target import parse_target

CONV = """@program(h=dim(1, 4096, {size}), w=dim(1, 4096, {size}))
def conv(x: f32[1, {inputs}, h, w] @ layout(0, 1 / 16, 2, 3, 1 % 16), f: f32[{outputs}, {inputs}, 1, 1] in constant):
    conv: f32[1, {outputs}, h, w] @ layout(0, 1 / 16, 2, 3, 1 % 16)
    for n, oc, oy, ox in axes(1, {outputs}, h, w):
        conv[n, oc, oy, ox] = sum(x[n, ic, oy + ky, ox + kx] * f[oc, ic, ky, kx] for ic, ky, kx in axes({inputs}, 1, 1))
    return conv
"""  # noqa: E501


def chosen(size, inputs, outputs):
    program = parse_ir(CONV.format(size=size, inputs=inputs, outputs=outputs))
    space = register_tile.space(program, parse_target("x86-64-v4"), 2)
    return space.default()


def test_one_axis_of_open_points_has_a_tail():
    decisions = chosen(56, 96, 24)
    assert 1 in (decisions["rows"], decisions["columns"])


def test_panels_divide_the_lanes():
    assert 128 % (16 * chosen(14, 800, 128)["vectors"]) == 0
