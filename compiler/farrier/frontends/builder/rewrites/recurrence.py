"""Rewrite LSTM, GRU and RNN to a product that projects the inputs of all steps, and a Recurrence.

The recurrent weights are packed in the order in which the kernel reads them: [block of units,
input, gate, lane]. For constant weights this is folded.
"""

from __future__ import annotations

import itertools

import numpy as np

from farrier.frontends.builder.builder import Builder
from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.ir.dim import number
from farrier.ops.operator import Mismatch
from farrier.ops.recurrent import ACTIVATIONS, GATES, LANES

_DEFAULTS = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",)}
_REVERSED = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}


def expand(node: RawNode, scope: Builder) -> list[RawNode]:
    """Return the nodes that compute an LSTM, GRU or RNN. Raises Mismatch for an unknown
    activation."""
    cell = node.op.lower()
    reverses = _REVERSED.get(str(node.attrs.get("direction", "forward")))
    if reverses is None:
        raise Mismatch(f"direction is {node.attrs['direction']!r}, not one of {list(_REVERSED)}")
    writer = _Writer(node, scope, cell)
    inputs = [writer.projected(), writer.packed(), node.input(4), node.input(5)]
    inputs += [node.input(6), node.input(7)] if cell == "lstm" else ["", ""]
    inputs.append(writer.recurrent_bias)
    names, alphas, betas = _activations(node, cell, len(reverses))
    attrs = {
        "cell": cell,
        "hidden": writer.hidden,
        "reversed": reverses,
        "activations": names,
        "alphas": alphas,
        "betas": betas,
        "clip": float(node.attrs.get("clip", 0.0)),
        "layout": int(node.attrs.get("layout", 0)),
        "linear_before_reset": int(node.attrs.get("linear_before_reset", 0)),
        "input_forget": int(node.attrs.get("input_forget", 0)),
    }
    return [RawNode("Recurrence", inputs, node.outputs, attrs, node.origin)]


class _Writer:
    """The rewrite of one node, which adds the nodes before the Recurrence. Strings are names of
    values."""

    def __init__(self, node: RawNode, scope: Builder, cell: str) -> None:
        self.recurrent_bias = ""
        self._node, self._scope = node, scope
        self._gates = GATES[cell]
        self._keeps_bias = bool(node.attrs.get("linear_before_reset", 0))
        weights, recurrent = (tuple(map(number, scope.shape(node.inputs[n]))) for n in (1, 2))
        self.hidden, self._directions = recurrent[-1], weights[0]
        rows = self._gates * self.hidden
        if weights[:2] != recurrent[:2] or recurrent[1:] != (rows, self.hidden):
            raise Mismatch(f"weights {weights} and {recurrent} for {self._gates} gates")
        self._width = weights[2]

    def _reshape(self, name: str, *shape: int) -> str:
        return self._scope.add("Reshape", name, shape)

    def _part(self, name: str, axis: int, start: int, end: int) -> str:
        """Return the slice [start, end) of a value along an axis."""
        bounds = (self._scope.constant(ints([value])) for value in (start, end, axis))
        return self._scope.add("Slice", name, *bounds)

    def projected(self) -> str:
        """Return the inputs of all steps times the input weights, plus both biases. The last axes
        are direction, gate and unit."""
        turned = self._scope.add("Transpose", self._node.inputs[1], perm=(2, 0, 1))
        units = self._directions * self._gates * self.hidden
        matrix = self._reshape(turned, self._width, units)
        product = self._scope.add("MatMul", self._node.inputs[0], matrix)
        bias = self._node.input(3)
        if not bias:
            return product
        return self._scope.add("Add", product, self._reshape(self._bias(bias), units))

    def _bias(self, name: str) -> str:
        """Return the sum of the input bias and the recurrent bias. For a GRU with
        `linear_before_reset`, the recurrent bias of the last gate is left out, because the kernel
        applies it separately."""
        both = self._reshape(name, self._directions, 2, self._gates, self.hidden)
        ours, theirs = self._part(both, 1, 0, 1), self._part(both, 1, 1, 2)
        if not self._keeps_bias:
            return self._scope.add("Add", ours, theirs)
        last = self._gates - 1
        kept = self._part(theirs, 2, last, self._gates)
        self.recurrent_bias = self._reshape(kept, self._directions, self.hidden)
        added = self._scope.add("Add", *(self._part(bias, 2, 0, last) for bias in (ours, theirs)))
        return self._scope.add("Concat", added, self._part(ours, 2, last, self._gates), axis=2)

    def packed(self) -> str:
        """Return the recurrent weights as [direction, block, input, gate, lane]."""
        hidden, blocks = self.hidden, -(-self.hidden // LANES)
        weights = self._reshape(self._node.inputs[2], self._directions, self._gates, hidden, hidden)
        if hidden % LANES:
            missing = blocks * LANES - hidden
            dtype = self._scope.dtype(self._node.inputs[2]).numpy
            zero = self._scope.constant(np.zeros((), dtype))
            pads = self._scope.constant(ints([0, 0, 0, 0, 0, 0, missing, 0]))
            weights = self._scope.add("Pad", weights, pads, zero)
        split = self._reshape(weights, self._directions, self._gates, blocks, LANES, hidden)
        return self._scope.add("Transpose", split, perm=(0, 2, 4, 1, 3))


def _activations(
    node: RawNode, cell: str, directions: int
) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]:
    """Return the activation functions of all directions, their alphas and their betas. The model
    lists alphas and betas only for the functions that have such a parameter."""
    listed = node.attrs.get("activations") or _DEFAULTS[cell] * directions
    names = tuple(str(name).lower() for name in listed)
    if len(names) != len(_DEFAULTS[cell]) * directions:
        raise Mismatch(f"{len(names)} activations for {directions} directions")
    unknown = [name for name in names if name not in ACTIVATIONS]
    if unknown:
        raise Mismatch(f"activation {unknown[0]!r} is not one of {', '.join(ACTIVATIONS)}")
    alphas, betas = (
        itertools.chain(node.attrs.get(f"activation_{which}") or ()) for which in ("alpha", "beta")
    )
    functions = [ACTIVATIONS[name] for name in names]
    return (
        names,
        tuple(0.0 if f.alpha is None else float(next(alphas, f.alpha)) for f in functions),
        tuple(0.0 if f.beta is None else float(next(betas, f.beta)) for f in functions),
    )
