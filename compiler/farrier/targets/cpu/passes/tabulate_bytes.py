"""The pass `tabulate-bytes`, which replaces elementwise computations from a byte to a byte by table
lookups."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.ir.expr import BYTES
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType
from farrier.ops import Kind, lookup
from farrier.passes.rewriting import Rewriter, join_origins
from farrier.passes.settings import Settings
from farrier.targets.cpu.target import CpuTarget, as_cpu

if TYPE_CHECKING:
    import numpy.typing as npt

_BYTES = (DType.U8, DType.I8)
_PER_LANE = 3  # The instructions for one lookup, lane by lane.


@dataclasses.dataclass(frozen=True, slots=True)
class _OfByte:
    """A tensor of which each element is a function of the corresponding byte of `source`. `results`
    are the values for all 256 bytes."""

    source: Value
    results: npt.NDArray[Any]
    nodes: tuple[Node, ...]  # The nodes that compute it.


def tabulate_bytes(graph: Graph, settings: Settings) -> Graph:
    """Replace a chain of elementwise operators that computes bytes from bytes by a lookup in a
    table of 256 results, if that takes fewer instructions. All other operands of the chain must be
    scalar constants. An example is a quantized activation: a DequantizeLinear, elementwise
    operators and a QuantizeLinear, or several of these in a row. The table is computed by the
    operators themselves, so results do not change.

    before:
        @graph
        def g(x: u8[2, 4]):
            s: f32[()] = constant(0.5)
            a: f32[2, 4] = DequantizeLinear(x, s, to='f32')
            b: f32[2, 4] = Sqrt(a)
            y: u8[2, 4] = QuantizeLinear(b, s, precision='f32', to='u8')
            return y

    after:
        @graph
        def g(x: u8[2, 4]):
            s: f32[()] = constant(0.5)
            a: f32[2, 4] = DequantizeLinear(x, s, to='f32')
            b: f32[2, 4] = Sqrt(a)
            y: u8[2, 4] = ByteTable(x, entries='000102020303…1717', to='u8')
            return y
    """
    return _Tables(graph, as_cpu(settings.target)).run()


class _Tables:
    def __init__(self, graph: Graph, target: CpuTarget) -> None:
        self._graph = graph
        self._rewriter = Rewriter(graph)
        self._dearest = 0 if target.table_lookup() is not None else _PER_LANE * target.lanes
        self._found: dict[str, _OfByte] = {}

    def run(self) -> Graph:
        for original in self._graph.nodes:
            node = self._rewriter.resolve_inputs(original)
            of_byte = self._of_byte(node)
            if of_byte is not None:
                self._found[node.outputs[0].name] = of_byte
                node = self._tabulated(node, of_byte)
            self._rewriter.emit(node)
        return self._rewriter.finish()

    def _of_byte(self, node: Node) -> _OfByte | None:
        """Return the result of a node as a function of a single tensor of bytes. Return None if the
        node has any other operands than functions of that tensor and constants with one element."""
        if lookup(node.op).kind is not Kind.ELEMENTWISE or len(node.outputs) != 1 or node.regions:
            return None
        (y,), operands, parts = node.outputs, list[Any](), dict[str, _OfByte]()
        for value in node.inputs:
            part = None if value is None else self._part(value)
            data = self._rewriter.data(value)
            if value is None:
                operands.append(None)
            elif part is not None:
                parts[value.name] = part
                operands.append(part.results)
            elif data is not None and data.size == 1:
                operands.append(data.reshape(()))
            else:
                return None
        sources = {part.source.name: part.source for part in parts.values()}
        if len(sources) != 1:
            return None
        (source,) = sources.values()
        if source.type.shape != y.type.shape:
            return None
        (results,) = lookup(node.op).evaluate(operands, dict(node.attrs), [y.type])
        before = {
            id(node_before): node_before for part in parts.values() for node_before in part.nodes
        }
        return _OfByte(source, results, (*before.values(), node))

    def _part(self, value: Value) -> _OfByte | None:
        """Return a value as a function of a tensor of bytes, or None. A tensor of bytes that was
        not computed from other bytes is the identity function of itself."""
        computed = self._found.get(value.name)
        if computed is None and value.type.dtype in _BYTES and self._rewriter.data(value) is None:
            numbers = np.arange(BYTES, dtype=np.uint8).view(value.type.dtype.numpy)
            return _OfByte(value, numbers, ())
        return computed

    def _tabulated(self, node: Node, of_byte: _OfByte) -> Node:
        """Return a ByteTable that computes the same result as `node`, if it takes fewer
        instructions than the chain that it replaces. Otherwise return `node` unchanged."""
        (y,) = node.outputs
        instructions = sum(lookup(each.op).instructions for each in of_byte.nodes)
        if y.type.dtype not in _BYTES or len(of_byte.nodes) < 2 or instructions <= self._dearest:
            return node
        entries = of_byte.results.astype(y.type.dtype.numpy).tobytes().hex()
        attrs = attributes(entries=entries, to=y.type.dtype.value)
        origin = join_origins(of_byte.nodes)
        return Node("ByteTable", (of_byte.source,), node.outputs, attrs, origin=origin)
