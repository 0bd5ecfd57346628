"""Compile a model with no trials, run it, and hold it to ONNX Runtime and the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper
from outside import onnxruntime_outputs

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph
from farrier.options import MAX_LAYER_ERROR

Array: TypeAlias = np.ndarray[Any, Any]


def small_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, Array] | None = None,
    dtype: int = onnx.TensorProto.FLOAT,
) -> bytes:
    """The bytes of a model whose inputs have one dtype."""
    infos = [helper.make_tensor_value_info(n, dtype, shape) for n, shape in inputs.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "small", infos, results, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 9
    return bytes(model.SerializeToString())


def judges(model: bytes, feeds: Mapping[str, Array]) -> list[dict[str, Array]]:
    """The outputs by name: ONNX Runtime's, where it has the operators, the reference's in the
    model's precision, and in float64 throughout."""
    imported = import_model(model)
    graph = imported.graph
    feeds_by_name = {
        v.name: feeds[n] for v, n in zip(graph.inputs, imported.input_names, strict=True)
    }
    collected = [outputs for outputs in onnxruntime_outputs(model, [feeds]) if outputs is not None]
    with np.errstate(all="ignore"):
        for wide in (False, True):
            results = run_graph(graph, feeds_by_name, wide=wide)
            collected.append(
                {
                    name: np.asarray(results[value.name]).astype(value.type.dtype.numpy)
                    for name, value in zip(imported.output_names, graph.outputs, strict=True)
                }
            )
    return collected


def is_close(actual: Array, expected: Array, *, special: bool = False) -> bool:
    """Check whether two outputs agree within rounding, with NaN equal to NaN. With `special` the
    error is measured element by element, since the range has no meaning."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if actual.dtype.kind != "f":
        wrong = actual != expected
    else:
        finite = expected[np.isfinite(expected)]
        scale = 0.0 if special else float(np.abs(finite).max(initial=1e-30))
        with np.errstate(all="ignore"):
            error = np.abs(actual - expected)
            relative = 2e-3 if special else 2e-4
            allowed = 1e-4 * scale + relative * (np.abs(expected) + 1e-5)
            nans = np.isnan(actual) & np.isnan(expected)
            wrong = ~((error <= allowed) | (actual == expected) | nans)
    return not wrong.any()


def assert_right(
    model: bytes,
    feeds: Mapping[str, Array],
    *,
    target: str = "host",
    threads: int = 1,
    special: bool = False,
) -> None:
    """Fail unless the compiled model agrees with one of the judges on every output, twice. With
    `special` all sums are plain: Winograd's filtering spreads NaN and infinity over a tile."""
    error = 0.0 if special else MAX_LAYER_ERROR
    artifact = farrier.compile(
        model, target=target, threads=threads, verify=False, max_layer_error=error
    )
    expected = judges(model, feeds)
    first = artifact.run(feeds)
    second = artifact.run(feeds)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=f"{name}, run again")
        assert any(is_close(array, e[name], special=special) for e in expected), (
            f"{name}: {array}\nexpected {expected[0][name]}"
        )
