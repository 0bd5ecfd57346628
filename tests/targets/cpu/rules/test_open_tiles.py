"""Kernels of open sizes have tiles that take few copies of their code."""

from __future__ import annotations

import numpy as np

from farrier.ir.evaluate import evaluate
from farrier.ir.parser import parse_ir
from farrier.targets import host, parse_target
from farrier.targets.cpu.rules import register_tile
from tests.ir.bind import bind
from tests.lowering import final_loops
from tests.schedule.programs import inputs_of
from tests.targets.cpu.codegen.differential import Compiled

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


def test_a_long_sum_is_sliced_in_any_batch():
    text = CONV.format(size=5, inputs=1024, outputs=32)
    text = text.replace("h=dim(1, 4096, 5), w=dim(1, 4096, 5)", "n=dim(1, 4096, 1)")
    program = parse_ir(
        text.replace("[1,", "[n,").replace(", h, w", ", 5, 5").replace("axes(1,", "axes(n,")
        .replace("for n,", "for i,").replace("[n, oc", "[i, oc").replace("[n, ic", "[i, ic")
    )  # fmt: skip
    space = register_tile.space(program, host(), 2)
    rows = space.candidates()
    sliced = rows[space.columns(rows)["slices"] > 1]
    function = final_loops(space, space.decisions(sliced[len(sliced) // 2]))
    with Compiled(function, threads=2) as kernel:
        for batch in (1, 2, 5):
            sizes = dict.fromkeys(program.dims, batch)
            bound = bind(program, sizes)
            inputs = inputs_of(bound)
            (expected,) = evaluate(bound, inputs).values()
            (actual,) = kernel(inputs, sizes).values()
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
