"""Where ONNX Runtime and Farrier's reference part, once rounding does not explain that they differ.

A build that agrees with Farrier's own operators in float64, and not with ONNX Runtime, is either
what ONNX Runtime rounds otherwise, or what one of the two reads otherwise. Rounding is tried: the
float64 evaluation is run again with every value moved by as much as its type rounds, or by a step
of a quantized one, in random directions. What moves an output as far as ONNX Runtime is off
explains it; on a chaotic model, on a tie, that is any distance.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.importer import ImportedModel, makers
from farrier.ir.dim import typical
from farrier.ir.graph import Node, Value
from farrier.ir.special import convert
from farrier.ir.types import DType
from farrier.model.file import Model
from farrier.ops.run import Seen, run_graph
from farrier.options.precision import rounding_of
from farrier.release.onnxruntime import OnnxRuntime

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = Mapping[str, Array]

_TRIALS = 3  # evaluations that are moved: a tie falls the other way in half of them
# How much more ONNX Runtime may be off than an evaluation is moved: the sum of many products, or
# the steps within one operator, round more often than their result does.
_ORDERS = 16.0
# Operators that round floats to integers, whose ties fall either way.
_ROUNDING = frozenset(("QuantizeLinear", "Resize"))
_STEPS = 8  # one of so many quantized values is moved by a step
_BYTES = 256 << 20  # of values that are compared at a time


@dataclasses.dataclass(frozen=True, slots=True)
class Parting:
    """A difference from ONNX Runtime that rounding does not explain."""

    engine: str  # and its version
    max_error: float  # max |float64 - its output| over max |its output|, the worst output
    node: str  # the first at which values differ; "" where that is not known
    node_error: float | None  # of that node's worst value

    def __str__(self) -> str:
        at = f"; they part at {self.node}, by {_shown(self.node_error)}" if self.node else ""
        return (
            "the build does what Farrier's own operators do in float64, but differs from "
            f"{self.engine} by {_shown(self.max_error)}, which rounding does not explain{at}: "
            "one of the two reads the model wrongly, or the model asks for what ONNX leaves open; "
            "please compare the outputs, and report the model"
        )


def parting(
    engine: OnnxRuntime,
    model: Model,
    imported: ImportedModel,
    inputs: Arrays,
    told: Sequence[Array],
    tolerance: float,
) -> Parting | None:
    """How the outputs that ONNX Runtime told for these inputs, without its optimizer, differ from
    float64 by more than the tolerance and rounding; None where they do not."""
    search = _Search(engine, imported, inputs, tolerance)
    outputs = [value.name for value in imported.graph.outputs]
    off = search.unexplained(outputs, told)
    if not off:
        return None
    texts = makers(model)
    known = {name: imported.values[name] for name in texts if name in imported.values}
    at = search.first(known)
    node, node_error = ("", None) if at is None else (texts[at[0]], at[1])
    return Parting(engine.name, max(off.values()), node, node_error)


class _Search:
    """The comparison of values by ONNX Runtime with those by float64 for the same inputs."""

    def __init__(
        self, engine: OnnxRuntime, imported: ImportedModel, inputs: Arrays, tolerance: float
    ) -> None:
        self._engine, self._graph, self._inputs = engine, imported.graph, inputs
        self._tolerance = tolerance
        pairs = zip(imported.graph.inputs, inputs.values(), strict=True)
        self._given = {value.name: array for value, array in pairs}
        made = {out.name: out for node in imported.graph.nodes for out in node.outputs}
        self._is_narrow = any(out.type.dtype.is_narrow_float for out in made.values())
        self._order = {name: place for place, name in enumerate(made)}
        self._sizes = {
            name: typical(value.type.size) * value.type.dtype.numpy.itemsize
            for name, value in made.items()
        }

    def first(self, known: Mapping[str, str]) -> tuple[str, float] | None:
        """The first value that differs, by the model's name, and its error; `known` leads from the
        model's names to the graph's. None where none of them does."""
        left = sorted(
            (name for name, value in known.items() if value in self._order),
            key=lambda name: self._order[known[name]],
        )
        found = None
        while left:
            chosen = self._thinned(left, known)
            answer = self._engine.run(self._inputs, (), extra=chosen)
            if answer is None:
                return found
            off = self.unexplained([known[name] for name in chosen], answer)
            bad = next((at for at, name in enumerate(chosen) if known[name] in off), None)
            if bad is None:
                left = left[left.index(chosen[-1]) + 1 :] if found is None else []
                continue
            found = chosen[bad], off[known[chosen[bad]]]
            begin = left.index(chosen[bad - 1]) + 1 if bad else 0
            left = left[begin : left.index(chosen[bad])]
        return found

    def unexplained(self, names: Sequence[str], told: Sequence[Array]) -> dict[str, float]:
        """The errors, by name, of the values that rounding does not explain."""
        wide = self._evaluated(names)
        off = {name: error_of(wide[name], array) for name, array in zip(names, told, strict=True)}
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
        """The values of these names in float64, each moved by `moved`."""
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

    def _thinned(self, names: Sequence[str], known: Mapping[str, str]) -> list[str]:
        """Some of the names, evenly spread and with the last one, whose values take little room."""
        total = sum(self._sizes[known[name]] for name in names)
        step = max(1, math.ceil(total / _BYTES))
        return [*names[::-1][::step]][::-1]


def _moved(generator: np.random.Generator) -> Seen:
    """Moves a value by what its type may round, or a quantized one by a step. A whole number is
    what it is in any type, and so is what an f32 holds."""

    def move(node: Node, value: Value, array: Array) -> Array:
        dtype = value.type.dtype
        if node.op in _ROUNDING and dtype.is_integer:
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


def error_of(one: Array, other: Array) -> float:
    """max |one - other| over max |other|; infinite where they are no numbers in different places,
    or have different shapes."""
    if one.shape != other.shape:
        return math.inf
    left, right = one.astype(np.float64), other.astype(np.float64)
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
