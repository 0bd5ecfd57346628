"""Rules of LSTM, GRU and RNN, which the exporter does not decompose: one recurrent node for each
layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farrier.frontends.builder import RawNode
from farrier.frontends.builder.rewrites import recurrence
from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import aten
from farrier.ir.dim import number
from farrier.ops import NotSupported

# The place of each of the Recurrence's gates among torch's: i o f g in i f g o, and z r n in r z n.
_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


@aten("aten.lstm.input")
def lstm(s: Scope, x: str, state: Sequence[str], weights: Sequence[str], *rest: Any) -> Any:
    return _Layers(s, "LSTM", weights, *rest).run(x, state)


@aten("aten.gru.input")
def gru(s: Scope, x: str, state: str, weights: Sequence[str], *rest: Any) -> Any:
    return _Layers(s, "GRU", weights, *rest).run(x, [state])


@aten("aten.rnn_tanh.input", "aten.rnn_relu.input")
def rnn(s: Scope, x: str, state: str, weights: Sequence[str], *rest: Any) -> Any:
    return _Layers(s, "RNN", weights, *rest).run(x, [state])


class _Layers:
    """A stack of recurrent layers, each of which reads the output sequence of the layer below."""

    def __init__(
        self,
        s: Scope,
        cell: str,
        weights: Sequence[str],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> None:
        if train and dropout > 0 and layers > 1:
            raise NotSupported("dropout that is active (call module.eval() before the export)")
        self._s, self._cell, self._layers = s, cell, layers
        self._directions = 2 if bidirectional else 1
        self._each = 4 if has_biases else 2  # Weights of a layer in one direction.
        self._batch_first = batch_first
        if len(weights) != layers * self._directions * self._each:
            raise NotSupported("an LSTM with projections")
        self._weights = weights

    def run(self, x: str, state: Sequence[str]) -> tuple[str, ...]:
        """Return the output sequence of the last layer, and the final states of all layers."""
        s, finals = self._s, list[tuple[str, ...]]()
        x = s.swapped(x, 0, 1) if self._batch_first else x
        for layer in range(self._layers):
            x, *last = self._layer(x, layer, state)
            finals.append(tuple(last))
        x = s.swapped(x, 0, 1) if self._batch_first else x
        return (x, *(s.concat(parts, 0) for parts in zip(*finals, strict=True)))

    def _layer(self, x: str, layer: int, state: Sequence[str]) -> tuple[str, ...]:
        s, count = self._s, self._directions
        states = [s.slice(h, 0, layer * count, (layer + 1) * count) for h in state]
        inputs = [x, self._stacked(layer, 0), self._stacked(layer, 1), self._bias(layer), ""]
        outputs = [s.b.fresh() for _ in range(1 + len(states))]
        attrs: dict[str, Any] = {
            "direction": "bidirectional" if count == 2 else "forward",
            "linear_before_reset": int(self._cell == "GRU"),
        }
        if "relu" in s.call.target:
            attrs["activations"] = ("Relu",) * count
        node = RawNode(self._cell, [*inputs, *states], outputs, attrs, s.call.name)
        with s.b.at(node):
            for inner in recurrence.expand(node, s.b):
                s.b.emit(inner)
        # [steps, directions, batch, hidden] → [steps, batch, directions · hidden]
        steps, _, batch, hidden = s.shape(outputs[0])
        joined = s.reshape(s.swapped(outputs[0], 1, 2), [steps, batch, count * hidden])
        return (joined, *outputs[1:])

    def _stacked(self, layer: int, position: int) -> str:
        """Return one kind of weights or biases of a layer, for all directions: [direction, gates ·
        hidden, …], with the gates in Farrier's order. `position` is the index of the kind among the
        weights and biases of one direction."""
        first = layer * self._directions
        parts = [
            self._ordered(self._weights[(first + direction) * self._each + position])
            for direction in range(self._directions)
        ]
        return self._s.concat([self._s.unsqueeze(part, 0) for part in parts], 0)

    def _ordered(self, weight: str) -> str:
        s, gates = self._s, _GATES[self._cell]
        if len(gates) == 1:
            return weight
        size = number(s.shape(weight)[0]) // len(gates)
        parts = s.nodes("Split", [weight, [size] * len(gates)], len(gates), axis=0)
        return s.concat([parts[gate] for gate in gates], 0)

    def _bias(self, layer: int) -> str:
        if self._each == 2:
            return ""
        return self._s.concat([self._stacked(layer, 2), self._stacked(layer, 3)], 1)
