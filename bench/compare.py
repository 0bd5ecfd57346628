"""Compare outputs of engines with each other, and with a float64 reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import Model
from farrier.ops.run import run_graph

Array = npt.NDArray[Any]


def difference(actual: Mapping[str, Array], wanted: Mapping[str, Array]) -> float:
    """Return the largest |difference| relative to the range of the expected output, over all
    outputs. It is infinite if shapes differ, or if only one of two corresponding elements is NaN or
    infinite."""
    return max((_error(actual[name], expected) for name, expected in wanted.items()), default=0.0)


def _error(actual: Array, wanted: Array) -> float:
    if actual.shape != wanted.shape:
        return float("inf")
    if wanted.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(actual, wanted) else float("inf")
    exact, values = wanted.astype(np.float64), actual.astype(np.float64)
    # Infinities count as equal here.
    alike = (exact == values) | (np.isnan(exact) & np.isnan(values))
    if alike.all():
        return 0.0
    finite = exact[np.isfinite(exact)]
    difference = np.abs(exact[~alike] - values[~alike]).max()
    return float("inf") if np.isnan(difference) else float(difference / (_range(finite) or 1.0))


def _range(values: npt.NDArray[np.float64]) -> float:
    return float(np.ptp(values)) if values.size else 0.0


def in_float64(model: Model | bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return a model's outputs computed in float64. Raises FarrierError if the model cannot be
    imported for these shapes."""
    imported = import_model(model, {name: array.shape for name, array in inputs.items()})
    graph = imported.graph
    feeds = {v.name: inputs[n] for n, v in zip(imported.input_names, graph.inputs, strict=True)}
    outputs = run_graph(graph, feeds, wide=True).values()
    return dict(zip(imported.output_names, outputs, strict=True))
