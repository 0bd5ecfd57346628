"""How far outputs are from each other, and from the operators in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import Model
from farrier.ops.run import run_graph

Array = npt.NDArray[Any]


def difference(made: Mapping[str, Array], wanted: Mapping[str, Array]) -> float:
    """max |difference| over the range of the wanted output, the worst of all outputs; infinite
    where shapes differ or one of the two has a number and the other none."""
    return max((_error(made[name], expected) for name, expected in wanted.items()), default=0.0)


def _error(made: Array, wanted: Array) -> float:
    if made.shape != wanted.shape:
        return float("inf")
    if wanted.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(made, wanted) else float("inf")
    exact, found = wanted.astype(np.float64), made.astype(np.float64)
    alike = (exact == found) | (np.isnan(exact) & np.isnan(found))  # infinities among them
    if alike.all():
        return 0.0
    finite = exact[np.isfinite(exact)]
    difference = np.abs(exact[~alike] - found[~alike]).max()
    return float("inf") if np.isnan(difference) else float(difference / (_range(finite) or 1.0))


def _range(values: npt.NDArray[np.float64]) -> float:
    return float(np.ptp(values)) if values.size else 0.0


def in_float64(model: Model | bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the operators give that are computed in float64. Raises FarrierError where the model
    cannot be imported for these shapes."""
    imported = import_model(model, {name: array.shape for name, array in inputs.items()})
    graph = imported.graph
    given = {v.name: inputs[n] for n, v in zip(imported.input_names, graph.inputs, strict=True)}
    outputs = run_graph(graph, given, wide=True).values()
    return dict(zip(imported.output_names, outputs, strict=True))
