"""NaN in what compares and converts, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NAN = float("nan")
EDGES = (NAN, NAN, np.inf, -np.inf, -1.5, 0.0, 2.0, 3.0)


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from(EDGES), min_size=7 * 2 * 3, max_size=7 * 2 * 3),
    st.integers(1, 7),
    st.sampled_from([np.float32, np.float64]),
)
def test_orders(check_operator, values, k, dtype):
    x = np.array(values, dtype).reshape(2, 7, 3)
    for largest in (0, 1):
        static = {1: np.array([k], np.int64)}
        check_operator("TopK", [x], static=static, outputs=2, axis=1, largest=largest)
    for op in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            check_operator(op, [x], axis=1, select_last_index=last)


@pytest.mark.parametrize("k", [1, 64, 200])
def test_many_elements_of_which_some_are_nan(check_operator, rng, k):
    """Whole blocks, which TopK compares in vectors, hold one NaN or none."""
    x = rng.standard_normal((3, 1009)).astype(np.float32)
    x[rng.random(x.shape) < 0.01] = NAN
    for largest in (0, 1):
        static = {1: np.array([k], np.int64)}
        check_operator("TopK", [x], static=static, outputs=2, largest=largest)


def test_a_row_that_nan_leads_has_no_hardmax(check_operator):
    x = np.array([[NAN, 1, 2], [1, NAN, 2], [3, 3, NAN], [NAN, NAN, NAN]], np.float32)
    check_operator("Hardmax", [x])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_what_quantization_cannot_hold(check_operator, dtype):
    x = np.array([*EDGES, 1e30, -1e30, 2.5, 3.5, -2.5], np.float32)
    for scale in (1.0, 0.5):
        operands = [x, np.array(scale, np.float32), np.array(3, dtype)]
        check_operator("QuantizeLinear", operands, opset=21)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grids_that_lead_nowhere(check_operator, mode, padding):
    """NaN, infinity and what no index holds are read as the coordinate -1."""
    x = np.arange(1, 41, dtype=np.float32).reshape(1, 2, 4, 5)
    lost = (NAN, np.inf, -np.inf, 1e20, -1e20)
    grid = np.array([[[[v, 0], [0.25, v], [v, v]] for v in lost]], np.float32)
    for aligned in (0, 1):
        attrs = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
        check_operator("GridSample", [x, grid], **attrs)
