"""Make one table of what is computed from a byte, element by element, until it is a byte again."""

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
_PER_LANE = 3  # instructions of an entry that is looked up alone


@dataclasses.dataclass(frozen=True, slots=True)
class _OfByte:
    """A tensor whose elements depend each on one byte of `source`: what they are for each byte."""

    source: Value
    results: npt.NDArray[Any]
    nodes: tuple[Node, ...]  # that compute it


def tabulate_bytes(graph: Graph, settings: Settings) -> Graph:
    """Replace what computes bytes from a tensor of bytes, element by element and with constants
    that are the same for all elements, by a table of its 256 results, where the target looks them
    up in fewer instructions. Quantized activations are such: a DequantizeLinear, elementwise
    operators, and a QuantizeLinear, or several of these in a row. The table is what the operators
    give, so results stay what they are.

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
            found = self._of_byte(node)
            if found is not None:
                self._found[node.outputs[0].name] = found
                node = self._tabulated(node, found)
            self._rewriter.emit(node)
        return self._rewriter.finish()

    def _of_byte(self, node: Node) -> _OfByte | None:
        """What a node computes from one tensor of bytes and from constants of one element."""
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
        before = {id(one): one for part in parts.values() for one in part.nodes}
        return _OfByte(source, results, (*before.values(), node))

    def _part(self, value: Value) -> _OfByte | None:
        """What computes a value; a byte that nothing of the kind computes is its own source."""
        known = self._found.get(value.name)
        if known is None and value.type.dtype in _BYTES and self._rewriter.data(value) is None:
            numbers = np.arange(BYTES, dtype=np.uint8).view(value.type.dtype.numpy)
            return _OfByte(value, numbers, ())
        return known

    def _tabulated(self, node: Node, found: _OfByte) -> Node:
        """The node, or a table in its place where that takes fewer instructions."""
        (y,) = node.outputs
        instructions = sum(lookup(each.op).instructions for each in found.nodes)
        if y.type.dtype not in _BYTES or len(found.nodes) < 2 or instructions <= self._dearest:
            return node
        entries = found.results.astype(y.type.dtype.numpy).tobytes().hex()
        made = attributes(entries=entries, to=y.type.dtype.value)
        origin = join_origins(found.nodes)
        return Node("ByteTable", (found.source,), node.outputs, made, origin=origin)
