"""The builder's interface to rewrites of ONNX nodes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TypeAlias

import onnx

from farrier.frontends.builder.builder import Builder
from farrier.frontends.builder.names import Entry
from farrier.frontends.builder.node import RawNode


class ImportScope(Builder, abc.ABC):
    """A builder that also imports nested graphs of a message, and operators that ONNX defines by
    others."""

    @abc.abstractmethod
    def nested(
        self, graph: onnx.GraphProto, entries: Mapping[str, Entry], opset: int
    ) -> list[Entry]:
        """Import a nested graph, whose inputs are `entries`, and return its outputs. The names that
        it defines are those of the graph at hand."""

    @abc.abstractmethod
    def expand(self, node: RawNode, opset: int) -> None:
        """Import the nodes by which ONNX defines this one. Raises NotSupported if ONNX does not
        define it by others."""

    def inline(
        self, graph: onnx.GraphProto, entries: Mapping[str, Entry], opset: int
    ) -> list[Entry]:
        """Import a nested graph as a part of the graph around it and return its outputs."""
        return self.inlined(lambda: self.nested(graph, entries, opset))


Upgrade: TypeAlias = Callable[[RawNode, int, ImportScope], list[RawNode]]
