"""The zeros around an output are written by the loop that writes the output, each once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from farrier.ir.loop import For, LoopKind
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.ir.types import Layout
from farrier.ir.verify_kernel import verify_function
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule
from tests.ir.bind import bind
from tests.lowering import finalize

RELAYOUT = """@program{dims}
def relayout(x: f32[{shape}]):
    y: f32[{shape}] @ layout(0, 1 / 4, 2, 3, 1 % 4, halo=((0, 0), (0, 0), {halo}))
    for n, c, h, w in axes({shape}):
        y[n, c, h, w] = x[n, c, h, w]
    return y
"""
HALOS = ["(1, 1), (1, 1)", "(1, 2), (2, 0)", "(0, 0), (3, 1)", "(2, 0), (0, 0)"]
PARALLEL = {  # The loops that become one parallel loop.
    "lines": ("y_h",),
    "blocks": ("y_block",),
    "lines of images": ("y_n", "y_h"),
    "blocks and lines": ("y_block", "y_h"),
    "lines and blocks": ("y_h", "y_block"),
    "columns": ("y_w",),
}


def scheduled(program, fused):
    """The nest of `program` with the loops `fused` as one parallel loop."""
    schedule = Schedule(to_loops(program))
    schedule.split("y_c", 4, "y_block", "y_lane")
    rest = [name for name in ("y_n", "y_block", "y_h", "y_w", "y_lane") if name not in fused]
    schedule.reorder(*fused, *rest)
    loop, *others = fused
    for number, other in enumerate(others):
        loop = schedule.fuse(loop, other, f"y_fused{number}")
    schedule.parallel(loop)
    function = finalize(schedule.function)
    verify_function(function)
    return function


def assert_written(function, sizes):
    """Values and zeros are where they belong, and nothing is left unwritten."""
    function = bind(function, sizes)
    (x, y) = function.params
    values = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32) + 9
    layout = y.layout
    memory = run_loops(function, {"x": values}, packed=True)["y"]
    np.testing.assert_array_equal(layout.unpack(memory, y.shape), values)
    around = [extent + sum(halo) for extent, halo in zip(y.shape, layout.halo, strict=True)]
    everywhere = Layout(layout.dims).pack(np.ones(around)) > 0
    inside = layout.pack(np.ones(y.shape)) > 0
    np.testing.assert_array_equal(memory[everywhere & ~inside], 0)  # NaN, were it not written


def parallel_loops(function):
    return [
        s for s in walk_stmts(function.body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL
    ]


@pytest.mark.parametrize("halo", HALOS)
@pytest.mark.parametrize("case", PARALLEL)
@pytest.mark.parametrize("shape", ["1, 8, 5, 7", "2, 5, 3, 2", "3, 17, 1, 1"])
def test_one_parallel_loop_writes_values_and_zeros(shape, case, halo):
    function = scheduled(parse_ir(RELAYOUT.format(dims="", shape=shape, halo=halo)), PARALLEL[case])
    assert len(parallel_loops(function)) <= 1  # A loop of one iteration is dropped.
    assert_written(function, {})


@pytest.mark.parametrize("case", ["lines", "blocks", "blocks and lines", "lines and blocks"])
def test_half_of_the_loop_writes_the_zeros_beside_its_values(case):
    program = parse_ir(RELAYOUT.format(dims="", shape="1, 32, 12, 12", halo=HALOS[0]))
    function = scheduled(program, PARALLEL[case])
    loop = function.body
    assert isinstance(loop, For)
    half = dataclasses.replace(function, body=dataclasses.replace(loop, extent=loop.extent // 2))
    memory = run_loops(half, {"x": np.ones((1, 32, 12, 12), np.float32)}, packed=True)["y"]
    assert memory.shape == (1, 8, 14, 14, 4)
    zeros = memory == 0  # NaN where nobody wrote
    assert zeros.sum() == (8 * (14 * 14 - 12 * 12) * 4) // 2
    first, second = (
        (zeros[:, :4], zeros[:, 4:]) if "blocks" in case[:6] else (zeros[:, :, :7], zeros[:, :, 7:])
    )
    assert first.any()
    assert not second.any()


@pytest.mark.parametrize("case", ["lines", "blocks", "columns"])
def test_extents_that_are_known_at_run_time_alone(case):
    dims = "(rows=dim(1, 40, 28), columns=dim(1, 40, 28))"
    program = parse_ir(RELAYOUT.format(dims=dims, shape="2, 8, rows, columns", halo=HALOS[1]))
    function = scheduled(program, PARALLEL[case])
    assert len(parallel_loops(function)) == 1
    for sizes in ((1, 1), (2, 7), (5, 3), (9, 1)):
        assert_written(function, dict(zip(program.dims, sizes, strict=True)))


def test_a_loop_that_may_be_empty_leaves_the_zeros_to_another():
    program = parse_ir(
        RELAYOUT.format(dims="(rows=dim(0, 40, 28))", shape="1, 8, rows, 5", halo=HALOS[1])
    )
    function = scheduled(program, ("y_h",))
    assert len(parallel_loops(function)) == 2
    for size in (0, 1, 6):
        assert_written(function, dict(zip(program.dims, (size,), strict=True)))
