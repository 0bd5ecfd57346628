"""The interface of the builder for rewrites of ONNX nodes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TypeAlias

import onnx

from farrier.frontends.builder.builder import Builder
from farrier.frontends.builder.names import Entry
from farrier.frontends.builder.node import RawNode


class ImportScope(Builder, abc.ABC):
    """A builder that can also import nested graphs of a message, and operators that ONNX defines as
    functions."""

    @abc.abstractmethod
    def nested(
        self, graph: onnx.GraphProto, entries: Mapping[str, Entry], opset: int
    ) -> list[Entry]:
        """Import a nested graph into a new region: bind its inputs to `entries`, and return its
        outputs."""

    @abc.abstractmethod
    def expand(self, node: RawNode, opset: int) -> None:
        """Import the function body by which ONNX defines the node's operator. Raises NotSupported
        if the operator is not a function."""

    def inline(
        self, graph: onnx.GraphProto, entries: Mapping[str, Entry], opset: int
    ) -> list[Entry]:
        """Import a nested graph into the enclosing graph, and return its outputs."""
        return self.inlined(lambda: self.nested(graph, entries, opset))


Upgrade: TypeAlias = Callable[[RawNode, int, ImportScope], list[RawNode]]
