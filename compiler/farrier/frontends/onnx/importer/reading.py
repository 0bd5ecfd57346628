"""Read a model's message once for all imports of the model.

Each question about open dims, and each hot size, is a further import; the parts that do not depend
on sizes are the same in all of them. So are the arrays of constants, whose memory identifies equal
constants of several imports.
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
    """The content of one graph; `message` keeps the key of the cache entry alive."""

    message: onnx.GraphProto
    initializers: tuple[tuple[str, npt.NDArray[Any]], ...]
    nodes: tuple[RawNode, ...]
    read: tuple[str, ...]


class Reading:
    """A model's message, and the content of the graphs that imports have reached.

    It is cached by its model, which it references weakly, so that it ends with the model. Callers
    that import hold both.
    """

    def __init__(self, files: Model, parsed: Parsed) -> None:
        self._files, self._parsed = weakref.ref(files), parsed
        self._contents: dict[tuple[int, int], _Content] = {}
        self.model = parsed.model
        self.opsets: Mapping[str, int] = opsets(parsed.model)

    def initializers(
        self, graph: onnx.GraphProto, opset: int
    ) -> tuple[tuple[str, npt.NDArray[Any]], ...]:
        """Return the initializers of a graph, by name, which may repeat. Raises InvalidModelError,
        and UnsupportedOperatorError for an operator that any run of the graph needs."""
        return self._content(graph, opset).initializers

    def nodes(self, graph: onnx.GraphProto, opset: int) -> list[RawNode]:
        """Return the nodes of a graph; the caller may change them."""
        return [
            dataclasses.replace(
                node, inputs=[*node.inputs], outputs=[*node.outputs], attrs={**node.attrs}
            )
            for node in self._content(graph, opset).nodes
        ]

    def names_read(self, graph: onnx.GraphProto, opset: int) -> tuple[str, ...]:
        """Return the names that the nodes of a graph read, and that the graphs in them return; may
        repeat."""
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
    """Return the reading of a model, whose message is parsed the first time. Raises
    InvalidModelError."""
    reading = _READ.get(files)
    if reading is None:
        reading = _READ[files] = Reading(files, parse(files))
    return reading


def makers(files: Model) -> dict[str, str]:
    """Return the nodes of the model's outermost graph, as messages name them, by the names of their
    outputs, in order. Raises InvalidModelError if the model cannot be read."""
    return {
        name: f"node {describe(node)!r} ({qualified_name(node)})"
        for node in reading_of(files).model.graph.node
        for name in node.output
        if name
    }
