"""Scatters against ONNX Runtime: reductions, clashing indices, rows of every width."""

from __future__ import annotations

import numpy as np
import pytest

REDUCTIONS = ["none", "add", "mul", "min", "max"]


def scattered(rng, shape, indexed, axis, dtype=np.float32, distinct=False):
    """Data, indices along an axis (negative ones among them), updates."""
    x, updates = (rng.standard_normal(s).astype(dtype) for s in (shape, indexed))
    indices = rng.integers(-shape[axis], shape[axis], indexed)
    if distinct:
        indices = np.argsort(rng.random(indexed), axis)
    return [x, indices, updates]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "indexed", "axis"),
    [
        ((5,), (3,), 0),
        ((3, 7), (3, 5), 1),
        ((9, 40), (7, 40), 0),
        ((4, 5, 6), (3, 5, 4), 1),
        ((2, 3, 4, 50), (2, 2, 4, 41), 1),
        ((1, 1), (1, 1), -1),
    ],
)
def test_elements(check_operator, rng, shape, indexed, axis, reduction):
    inputs = scattered(rng, shape, indexed, axis, distinct=reduction == "none")
    check_operator("ScatterElements", inputs, opset=18, axis=axis, reduction=reduction)


def test_scatter_is_an_old_name(check_operator, rng):
    check_operator("Scatter", scattered(rng, (3, 7), (3, 5), 1, distinct=True), opset=9, axis=1)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "lead", "depth"),
    [
        ((6,), (4,), 1),
        ((7, 3), (11,), 1),
        ((7, 8), (11,), 1),
        ((7, 64), (2, 5), 1),
        ((5, 100), (31,), 1),
        ((9, 41), (1200,), 1),
        ((1, 37), (1200,), 1),
        ((2, 3, 7), (5,), 2),
        ((4, 3, 2, 17), (2, 2), 3),
        ((3, 4), (5,), 2),
    ],
)
def test_nd(check_operator, rng, shape, lead, depth, reduction):
    x = rng.standard_normal(shape).astype(np.float32)
    indices = np.stack([rng.integers(-s, s, lead) for s in shape[:depth]], -1)
    if reduction == "none":
        rows = rng.permutation(np.prod(shape[:depth]))[: np.prod(lead)]
        if rows.size < np.prod(lead):
            pytest.skip("more updates than rows: the last one wins in an order of its own")
        indices = np.stack(np.unravel_index(rows.reshape(lead), shape[:depth]), -1)
    updates = rng.standard_normal((*lead, *shape[depth:])).astype(np.float32)
    check_operator("ScatterND", [x, indices, updates], opset=18, reduction=reduction)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64])
def test_element_types(check_operator, rng, dtype):
    x, indices, updates = scattered(rng, (6, 70), (9, 70), 0)
    operands = [(10 * x).astype(dtype), indices, (10 * updates).astype(dtype)]
    check_operator("ScatterElements", operands, opset=18, reduction="add")
    rows = [operands[0], indices[:, :1], operands[2]]
    check_operator("ScatterND", rows, opset=18, reduction="add")


def test_indices_outside_stay_inside(check_operator, rng):
    """Nothing is written outside the output, whatever the data."""
    x, updates = np.zeros((4, 70), np.float32), np.ones((3, 70), np.float32)
    indices = np.array([[9], [-9], [2]], np.int64)
    expected = x.copy()
    expected[[0, 2, 3]] = 1
    check_operator("ScatterND", [x, indices, updates], opset=18, expected=[expected])
    wide = np.broadcast_to(indices, (3, 70)).copy()
    check_operator("ScatterElements", [x, wide, updates], opset=18, expected=[expected])
