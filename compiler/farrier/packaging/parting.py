"""Find the node at which ONNX Runtime and Farrier's reference differ by more than rounding
explains.

If a build agrees with Farrier's own operators in float64 but not with ONNX Runtime, then ONNX
Runtime rounds differently, or the two interpret the model differently. To test for rounding, the
float64 evaluation is repeated with each value perturbed in a random direction, by the rounding
error of its type or by one step of a quantized type. Rounding explains a difference if the
perturbed evaluation differs by about as much. On a chaotic model, or at a tie, that may be any
amount.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder import ImportedModel
from farrier.frontends.onnx.model.file import Model
from farrier.ir.dim import typical
from farrier.ir.graph import Node, Value
from farrier.ir.special import convert
from farrier.ir.types import DType
from farrier.ops import Trait, lookup
from farrier.ops.run import Seen, run_graph
from farrier.options.precision import rounding_of
from farrier.packaging.reference_engine import ReferenceEngine

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = Mapping[str, Array]

# The number of perturbed evaluations. A tie falls the other way in half of them, so three miss it
# with a probability of 1/8.
_TRIALS = 3
# ONNX Runtime may be off by this times the perturbation: a sum of many products, or the steps
# within one operator, round more often than their result does.
_ORDERS = 16.0
# Of this number of rounded values one is perturbed by a step: ONNX Runtime agrees with float64 on
# most.
_STEPS = 8
# The bytes of values that are compared at a time: 256 MiB, little compared with a model's memory.
_BYTES = 256 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Parting:
    """A difference from ONNX Runtime that rounding does not explain, and the first value that
    differs."""

    engine: str  # The engine's name and version.
    max_error: float  # The largest max |float64 - its output| over max |its output|.
    node: str  # The first node at which values differ, or "" if it was not found.
    node_error: float | None  # The error of that node's worst value.

    def __str__(self) -> str:
        at = f"; they part at {self.node}, by {_shown(self.node_error)}" if self.node else ""
        return (
            "the build does what Farrier's own operators do in float64, but differs from "
            f"{self.engine} by {_shown(self.max_error)}, which rounding does not explain{at}: "
            "one of the two reads the model wrongly, or it asks for what its format leaves open; "
            "please compare the outputs, and report the model"
        )


def parting(
    engine: ReferenceEngine,
    model: Model | None,
    imported: ImportedModel,
    inputs: Arrays,
    answer: Sequence[Array],
    tolerance: float,
) -> Parting | None:
    """Return the difference between ONNX Runtime and float64, or None if the tolerance or rounding
    explains it.

    `answer` holds the outputs that ONNX Runtime, without its optimizer, computed from `inputs`.
    """
    search = _Search(engine, imported, inputs, tolerance)
    outputs = [value.name for value in imported.graph.outputs]
    off = search.unexplained(outputs, answer)
    if not off:
        return None
    if model is None:  # Only ONNX Runtime returns values inside a model.
        return Parting(engine.name, max(off.values()), "", None)
    from farrier.frontends.onnx.importer import (
        makers,  # It imports onnx, which other models do not need.
    )

    texts = makers(model)
    values = {name: imported.values[name] for name in texts if name in imported.values}
    at = search.first(values)
    node, node_error = ("", None) if at is None else (texts[at[0]], at[1])
    return Parting(engine.name, max(off.values()), node, node_error)


class _Search:
    """A search for differences between ONNX Runtime's values and those of float64 for the same
    inputs."""

    def __init__(
        self, engine: ReferenceEngine, imported: ImportedModel, inputs: Arrays, tolerance: float
    ) -> None:
        self._engine, self._graph, self._inputs = engine, imported.graph, inputs
        self._tolerance = tolerance
        pairs = zip(imported.graph.inputs, inputs.values(), strict=True)
        self._given = {value.name: array for value, array in pairs}
        results = {out.name: out for node in imported.graph.nodes for out in node.outputs}
        self._is_narrow = any(out.type.dtype.is_narrow_float for out in results.values())
        self._order = {name: place for place, name in enumerate(results)}
        self._sizes = {
            name: typical(value.type.size) * value.type.dtype.numpy.itemsize
            for name, value in results.items()
        }

    def first(self, values: Mapping[str, str]) -> tuple[str, float] | None:
        """Return the name in the model of the first value that differs, and its error; None if none
        differs. `values` maps the model's names to the graph's."""
        left = sorted(
            (name for name, value in values.items() if value in self._order),
            key=lambda name: self._order[values[name]],
        )
        earliest = None
        while left:
            chosen = self._thinned(left, values)
            answer = self._engine.run(self._inputs, (), extra=chosen)
            if answer is None:
                return earliest
            off = self.unexplained([values[name] for name in chosen], answer)
            bad = next((at for at, name in enumerate(chosen) if values[name] in off), None)
            if bad is None:
                left = left[left.index(chosen[-1]) + 1 :] if earliest is None else []
                continue
            earliest = chosen[bad], off[values[chosen[bad]]]
            begin = left.index(chosen[bad - 1]) + 1 if bad else 0
            left = left[begin : left.index(chosen[bad])]
        return earliest

    def unexplained(self, names: Sequence[str], answer: Sequence[Array]) -> dict[str, float]:
        """Return the values in the engine's `answer` that differ from float64 for other reasons
        than rounding, as a mapping from name to error. A value is included if it differs by more
        than the tolerance, and by far more than rounding can explain. `answer` has one array for
        each of `names`."""
        wide = self._evaluated(names)
        off = {name: error_of(wide[name], array) for name, array in zip(names, answer, strict=True)}
        off = {name: error for name, error in off.items() if error > self._tolerance}
        for seed in range(_TRIALS):
            if not off:
                break
            moved = self._evaluated(list(off), _moved(np.random.default_rng(seed)))
            off = {
                name: error
                for name, error in off.items()
                if error > _ORDERS * error_of(moved[name], wide[name])
            }
        return off

    def _evaluated(self, names: Sequence[str], moved: Seen | None = None) -> dict[str, Array]:
        """Evaluate the graph in float64 and return the values with these names; `moved` perturbs
        each value as it is computed."""
        wanted = set(names)
        kept: dict[str, Array] = {}

        def seen(node: Node, value: Value, array: Array) -> Array:
            array = array if moved is None else moved(node, value, array)
            if value.name in wanted:
                kept[value.name] = array
            return array

        with np.errstate(all="ignore"):
            outputs = run_graph(self._graph, self._given, wide=True, seen=seen)
        return kept | {name: outputs[name] for name in wanted - kept.keys()}

    def _thinned(self, names: Sequence[str], values: Mapping[str, str]) -> list[str]:
        """Return a subset of the names, evenly spread and including the last, whose values fit into
        `_BYTES`."""
        total = sum(self._sizes[values[name]] for name in names)
        step = max(1, math.ceil(total / _BYTES))
        return [*names[::-1][::step]][::-1]


def _moved(generator: np.random.Generator) -> Seen:
    """Return a function that perturbs a value by the rounding error of its type, or a quantized
    value by one step. Integers, and values that are exact in f32, are not rounded and stay
    unchanged."""

    def move(node: Node, value: Value, array: Array) -> Array:
        dtype = value.type.dtype
        if dtype.is_integer and lookup(node.op).has(Trait.TIES):
            step = generator.integers(-1, 2, array.shape)
            step *= generator.integers(0, _STEPS, array.shape) == 0
            return convert(np.clip(array.astype(np.int64) + step, *dtype.limits), dtype)
        if not dtype.is_float:
            return array
        wide = array.astype(np.float64)
        exact = wide == np.trunc(wide)
        if dtype is DType.F32:
            exact |= wide == wide.astype(np.float32)
        share = rounding_of(dtype) * generator.uniform(-1, 1, array.shape)
        moved = np.where(exact, wide, wide * (1 + share))
        return moved if array.dtype == np.float64 else convert(moved, dtype)

    return move


def error_of(array: Array, reference: Array) -> float:
    """Return max |array - reference| divided by max |reference|. It is infinite if the shapes
    differ, or if NaNs or infinities are at different positions."""
    if array.shape != reference.shape:
        return math.inf
    left, right = array.astype(np.float64), reference.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        if same.all():
            return 0.0
        off = float(np.max(np.abs(left - right)[~same]))
    span = float(np.max(np.abs(right), where=np.isfinite(right), initial=0.0))
    return off / span if span and math.isfinite(off) else math.inf


def _shown(error: float | None) -> str:
    if error is None or not math.isfinite(error):
        return "more than their range"
    return f"{error:.1e} of the range"
