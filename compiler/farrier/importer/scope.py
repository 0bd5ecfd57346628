"""What rewrites of nodes may ask of the import, and ask it for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

from farrier.importer.raw import RawNode
from farrier.importer.symbolic import as_array
from farrier.ir.types import DType, Shape


class Scope(Protocol):
    """The import, as a rewrite of one node sees it."""

    def constant(self, data: npt.NDArray[Any]) -> str:
        """Defines a constant and gives its name."""

    def fresh(self) -> str:
        """A name for a new value."""

    def shape(self, name: str) -> Shape:
        """The shape of a value defined so far."""

    def dtype(self, name: str) -> DType:
        """The element type of a value defined so far."""

    def data(self, name: str) -> npt.NDArray[Any] | None:
        """The value of a constant, None for what is known only at run time."""

    def is_read(self, name: str) -> bool:
        """Whether any node or output of the model reads the value."""

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Imports a node in the newest opset's form before the one at hand; gives its output."""

    def expand(self, node: RawNode, opset: int) -> None:
        """Imports the nodes by which ONNX defines this one; NotSupported where it does not."""


Upgrade: TypeAlias = Callable[[RawNode, int, Scope], list[RawNode]]


def ints(values: Any) -> npt.NDArray[Any]:
    """Integers and dims as the operators take them."""
    return as_array(values, DType.I64)
