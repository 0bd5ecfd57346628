"""Operators whose results' extents are data: what the kernel writes, and how much of it counts."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from farrier.frontends.onnx.importer import import_model
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.run_loops import run_loops
from farrier.ir.types import DType, TensorType
from farrier.ir.verify_kernel import verify_function
from farrier.lower.region import lower_region
from farrier.ops import NotStatic, lookup, run_node
from farrier.targets import host
from farrier.targets.cpu.rules import for_program
from tests.lowering import final_loops
from tests.ops.conftest import one_node_model
from tests.targets.cpu.codegen.differential import run_compiled


def check(op, arrays, expected, **attrs):
    """Hold the reference, the interpreter and compiled code against `expected`; omitted inputs are
    None."""
    values = [
        None if a is None else Value(f"x{i}", TensorType(DType.from_numpy(a.dtype), a.shape))
        for i, a in enumerate(arrays)
    ]
    attrs["extent"] = "n"
    kinds = lookup(op).infer([v.type if v else None for v in values], {}, attrs)
    outputs = tuple(Value(f"y{i}", kind) for i, kind in enumerate(kinds))
    node = Node(op, tuple(values), outputs, attributes(**attrs))
    graph = Graph("g", tuple(v for v in values if v), (), (node,), outputs)
    references = run_node(node, arrays)
    function = lower_region(graph, "kernel", ())
    verify_function(function)
    space = for_program(function, host(), 2)
    present = [a for a in arrays if a is not None]
    feeds = {p.name: a.reshape(p.shape) for p, a in zip(function.params, present, strict=False)}
    runs = [run_loops(function, feeds)]
    for row in space.candidates():
        built = final_loops(space, space.decisions(row))
        verify_function(built)
        runs.append(run_compiled(built, feeds, threads=2))
    count = references[-1]
    assert count.dtype == np.int64
    for theirs, ours in zip(expected, references, strict=False):
        np.testing.assert_array_equal(ours, theirs)
    for results in runs:
        *actual, total = results.values()
        assert total == count
        for data, reference in zip(actual, references, strict=False):
            flat = data.reshape(-1)[: reference.size]
            np.testing.assert_array_equal(flat.reshape(reference.shape), reference)


def of_onnxruntime(op, arrays, outputs, opset=13, **attrs):
    model = one_node_model(op, arrays, {}, outputs, opset, attrs)
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    return onnxruntime.InferenceSession(model).run(None, feeds)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4, 5), (1, 1), (3000,), (0, 3)])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_non_zero(rng, shape, share):
    x = (rng.random(shape) < share).astype(np.float32) * 3
    check("NonZero", [x], [np.array(np.nonzero(x))])
    check("NonZero", [x > 0], [np.array(np.nonzero(x))])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("length", [2, 4, 60])
def test_compress(rng, axis, length):
    x = rng.standard_normal((4, 5, 3)).astype(np.float32)
    along = x.size if axis is None else x.shape[axis]
    condition = rng.random(min(length, along)) < 0.6
    attrs = {} if axis is None else {"axis": axis}
    check("Compress", [x, condition], [np.compress(condition, x, axis)], **attrs)


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize(("shape", "axis"), [((50,), None), ((6, 4), 0), ((3, 9), 1), ((1,), 0)])
def test_unique(rng, shape, axis, ordered):
    x = rng.integers(0, 3, shape).astype(np.float32)
    attrs = {"sorted": ordered} | ({} if axis is None else {"axis": axis})
    check("Unique", [x], of_onnxruntime("Unique", [x], 4, **attrs), **attrs)
    check("Unique", [x.astype(np.int64)], [], **attrs)


def test_one_of_all_that_is_no_number():
    x = np.array([2, np.nan, 1, np.nan, np.inf, -np.inf], np.float32)
    check("Unique", [x], [np.array([-np.inf, 1, 2, np.inf, np.nan], np.float32)])


@pytest.mark.parametrize("is_centered", [0, 1])
@pytest.mark.parametrize(("boxes", "classes", "most"), [(40, 3, 5), (1, 1, 3), (200, 2, 200)])
def test_boxes(rng, boxes, classes, most, is_centered):
    corners = rng.random((2, boxes, 4)).astype(np.float32)
    scores = rng.integers(0, 50, (2, classes, boxes)).astype(np.float32) / 50
    arrays = [corners, scores, np.array([most], np.int64)]
    for rest in (
        [],
        [np.array([0.3], np.float32)],
        [np.array([c], np.float32) for c in (0.4, 0.2)],
    ):
        expected = of_onnxruntime(
            "NonMaxSuppression", [*arrays, *rest], 1, center_point_box=is_centered
        )
        check("NonMaxSuppression", [*arrays, *rest], expected, center_point_box=is_centered)


@pytest.mark.parametrize("threshold", [None, 0.1])
def test_boxes_whose_score_is_nan_come_last(threshold):
    left = 2 * np.arange(5, dtype=np.float32)
    boxes = np.stack([left, 0 * left, left + 1, 0 * left + 1], -1)[None]
    scores = np.array([[[0.5, np.nan, 0.7, 0.6, np.nan]]], np.float32)
    rest = [np.array([9]), np.array([0.5], np.float32)]
    rest += [] if threshold is None else [np.array([threshold], np.float32)]
    order = [2, 3, 0] if threshold else [2, 3, 0, 1, 4]
    expected = np.array([[0, 0, box] for box in order], np.int64)
    check("NonMaxSuppression", [boxes, scores, *rest], [expected])


def test_without_a_limit_no_box_stays(rng):
    arrays = [rng.random((1, 3, 4)).astype(np.float32), np.ones((1, 1, 3), np.float32)]
    check("NonMaxSuppression", arrays, [np.zeros((0, 3), np.int64)])


def test_what_constants_decide_is_static(rng):
    x = np.array([[1, 0, 2]], np.float32)
    model = one_node_model("NonZero", [], {0: x}, 1, 13, {})
    (value,) = import_model(model).graph.outputs
    assert value.type.shape == (2, 2)


def test_an_extent_without_a_name_is_refused():
    with pytest.raises(NotStatic, match="depends on data"):
        lookup("NonZero").infer([TensorType(DType.F32, (3,))], {}, {})
