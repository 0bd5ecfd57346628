"""The kernel that packs constants does what `Layout.pack` does."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.expr import Buffer
from farrier.ir.run_loops import run_loops
from farrier.ir.types import DType, Layout, PhysicalDim
from farrier.measure.packing import packing_function

LAYOUTS = [
    ((13, 5), Layout((PhysicalDim(0, 4), PhysicalDim(1), PhysicalDim(0, 1, 4)))),
    ((8, 3), Layout((PhysicalDim(1), PhysicalDim(0)))),
    (
        (10, 6, 3, 3),
        Layout(
            (
                PhysicalDim(0, 8),
                PhysicalDim(1, 4),
                PhysicalDim(2),
                PhysicalDim(3),
                PhysicalDim(1, 1, 4),
                PhysicalDim(0, 1, 8),
            )
        ),
    ),
]


@pytest.mark.parametrize(("shape", "layout"), LAYOUTS)
def test_it_packs_as_numpy_does(shape, layout):
    plain = Buffer("w_plain", DType.F32, shape)
    packed = Buffer("w", DType.F32, shape, layout)
    function = packing_function("pack", (packed, plain), [(plain, packed)])
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    buffers = run_loops(function, {"w_plain": data})
    np.testing.assert_array_equal(buffers["w"], data)
    assert function.params == (packed, plain)


def test_several_constants_are_packed_by_one_function():
    layout = LAYOUTS[0][1]
    pairs = [
        (Buffer(f"p{i}", DType.F32, (13, 5)), Buffer(f"q{i}", DType.F32, (13, 5), layout))
        for i in range(2)
    ]
    params = [buffer for pair in pairs for buffer in pair]
    data = {f"p{i}": np.full((13, 5), i + 1.0, np.float32) for i in range(2)}
    buffers = run_loops(packing_function("pack", params, pairs), data)
    assert (buffers["q0"] == 1).all()
    assert (buffers["q1"] == 2).all()
