"""Cache the parsed message of a model for all imports of the model.

Each question about open dims, and each set of hot sizes, causes another import. All imports share
the parts that do not depend on sizes, and the arrays of constants: a large weight has the same
address in each of them, and therefore the same `Constant.identity`.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import onnx

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.parse import Parsed, opsets, parse
from farrier.frontends.onnx.importer.raw import describe, names_read, qualified_name, to_raw
from farrier.frontends.onnx.importer.schema import check_node
from farrier.frontends.onnx.importer.tensors import dense_array, to_array
from farrier.frontends.onnx.importer.unknown import check_known, version_of
from farrier.frontends.onnx.model.file import Model


@dataclasses.dataclass(frozen=True, slots=True)
class _Content:
    """The converted content of a graph, in the cache. `message` is the graph's message, whose
    identity is the key of the entry; the reference keeps it alive."""

    message: onnx.GraphProto
    initializers: tuple[tuple[str, npt.NDArray[Any]], ...]
    nodes: tuple[RawNode, ...]
    read: tuple[str, ...]


class Reading:
    """A model's message, and the converted content of the graphs that imports have visited.

    It is cached by model with a weak reference, so it is freed with the model. An import must hold
    both.
    """

    def __init__(self, files: Model, parsed: Parsed) -> None:
        self._files, self._parsed = weakref.ref(files), parsed
        self._contents: dict[tuple[int, int], _Content] = {}
        self.model = parsed.model
        self.opsets: Mapping[str, int] = opsets(parsed.model)

    def initializers(
        self, graph: onnx.GraphProto, opset: int
    ) -> tuple[tuple[str, npt.NDArray[Any]], ...]:
        """Return a graph's initializers as (name, array); names may repeat. Raises
        InvalidModelError, and UnsupportedOperatorError if the graph always executes an unsupported
        operator."""
        return self._content(graph, opset).initializers

    def nodes(self, graph: onnx.GraphProto, opset: int) -> list[RawNode]:
        """Return copies of a graph's nodes, which the caller may change."""
        return [
            dataclasses.replace(
                node, inputs=[*node.inputs], outputs=[*node.outputs], attrs={**node.attrs}
            )
            for node in self._content(graph, opset).nodes
        ]

    def names_read(self, graph: onnx.GraphProto, opset: int) -> tuple[str, ...]:
        """Return the names of all values that the nodes of a graph read. The operands and outputs
        of their nested graphs are included. Names may repeat."""
        return self._content(graph, opset).read

    def _content(self, graph: onnx.GraphProto, opset: int) -> _Content:
        key = (id(graph), opset)
        if key not in self._contents:
            self._contents[key] = self._made(graph, opset)
        return self._contents[key]

    def _made(self, graph: onnx.GraphProto, opset: int) -> _Content:
        check_known(graph, self.opsets)
        files = self._files()
        elements = self._parsed.elements if graph is self.model.graph else {}
        initializers = tuple(
            (
                tensor.name,
                to_array(tensor, f"initializer {tensor.name!r}", elements.get(tensor.name), files),
            )
            for tensor in graph.initializer
        )
        initializers += tuple(
            (tensor.values.name, dense_array(tensor, f"initializer {tensor.values.name!r}", files))
            for tensor in graph.sparse_initializer
        )
        for node in graph.node:
            check_node(node, version_of(node, {**self.opsets, "": opset}))
        nodes = tuple(to_raw(node, files) for node in graph.node)
        return _Content(graph, initializers, nodes, tuple(names_read(graph.node)))


_READ: weakref.WeakKeyDictionary[Model, Reading] = weakref.WeakKeyDictionary()


def reading_of(files: Model) -> Reading:
    """Return the cached `Reading` of a model, which is parsed at the first call. Raises
    InvalidModelError."""
    reading = _READ.get(files)
    if reading is None:
        reading = _READ[files] = Reading(files, parse(files))
    return reading


def makers(files: Model) -> dict[str, str]:
    """Return, for each output of a node in the outermost graph, the node's description for
    messages, in the order of the nodes. Raises InvalidModelError if the model cannot be parsed."""
    return {
        name: f"node {describe(node)!r} ({qualified_name(node)})"
        for node in reading_of(files).model.graph.node
        for name in node.output
        if name
    }
