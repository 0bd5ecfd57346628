"""What rewrites of nodes may ask of the import, and ask it for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt
import onnx

from farrier.errors import UnresolvedShapeError
from farrier.importer.names import Body, Entry
from farrier.importer.raw import RawNode
from farrier.importer.symbolic import as_array
from farrier.ir.dim import Extent, Question, substitute
from farrier.ir.graph import Graph, Node, Value
from farrier.ir.sizes import Demand
from farrier.ir.types import DType, Shape, TensorType

_FIRST_ROOM = (256, 32, 16, 8)


def first_room(beside: int) -> int:
    """How long what data decides, and nothing bounds, is taken to be at first, `beside` being in
    one shape; more room is made when a run finds that it needs it."""
    return _FIRST_ROOM[min(max(beside, 1), len(_FIRST_ROOM)) - 1]


class ImportScope(Protocol):
    """The import, as a rewrite of one node sees it."""

    def constant(self, data: npt.NDArray[Any]) -> str:
        """Define a constant and give its name."""

    def fresh(self) -> str:
        """A name for a new value."""

    def shape(self, name: str) -> Shape:
        """The shape of a value defined so far."""

    def dtype(self, name: str) -> DType:
        """The element type of a value defined so far."""

    def data(self, name: str) -> npt.NDArray[Any] | None:
        """The value of a constant, None for what is known only at run time."""

    def sizes(
        self, name: str, bounds: Sequence[Extent | None] = (), usual: int | None = None
    ) -> npt.NDArray[Any]:
        """The elements of an integer tensor as extents. What is known only at run time becomes
        symbols, whose values are found out when the model gets there: none may be negative, or more
        than its bound (None: whatever there is room for). `usual` is what code is made for and, of
        what has no bound, what there is room for at first; None: the bound, or what `first_room`
        says."""

    def elements(self, name: str) -> list[Extent | str]:
        """The elements of an integer tensor, flattened: extents where they are known, else names of
        i64 scalars."""

    def filled(self, name: str) -> int | None:
        """Return the number that all elements of an integer tensor equal, or None if unknown."""

    def scalars(self, name: str) -> list[Any]:
        """Return the elements of a tensor, flattened: numbers, dims and shares if they are known at
        import, else names of scalars of its type."""

    def require(
        self,
        name: str,
        sizes: Sequence[Extent],
        demands: Demand = Demand.EXACT,
        needs: str = "",
    ) -> None:
        """Add a check that ends a run unless the elements of an integer tensor equal `sizes`, or
        are in the relation `demands` to them. `needs` describes the requirement; "" stands for
        sizes."""

    def defers(self, question: Question) -> None:
        """Note a question about dims whose answer would make the sizes that the current node
        defines follow from shapes. It is asked if nothing else settles a question about these."""

    def unknown(self, name: str) -> str:
        """The value, computed at run time where it is a constant that depends on sizes."""

    def is_read(self, name: str) -> bool:
        """Whether any node or output of the model reads the value."""

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Import a node in the newest opset's form before the one at hand; give its output."""

    def emit(self, node: RawNode) -> None:
        """Import a node of several outputs, in the newest opset's form, before the current one."""

    def expand(self, node: RawNode, opset: int) -> None:
        """Import the nodes by which ONNX defines this one; NotSupported where it does not."""


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """A nested graph as it was imported, before it is part of a node."""

    body: Body
    inputs: tuple[Value, ...]
    outputs: tuple[Entry, ...]

    def in_shape(self, shape: Shape) -> Shape:
        """A shape of the graph around it in the sizes with which a run enters the region."""
        return tuple(substitute(extent, self.body.sizes) for extent in shape)


class Regions(ImportScope, Protocol):
    """The import, as a rewrite of control flow sees it."""

    def entry(self, name: str) -> Entry:
        """What a name stands for."""

    def bind(self, name: str, entry: Entry) -> str:
        """Say what a name stands for, a new one where it is ""; give it."""

    def define(self, kind: TensorType) -> Value:
        """A new value of that type, under no name of the model."""

    def known(self, value: Value) -> npt.NDArray[Any] | None:
        """The value of a constant, None for what is known only at run time."""

    def inline(self, graph: onnx.GraphProto, given: Mapping[str, Entry], opset: int) -> list[Entry]:
        """Import a nested graph as a part of the graph around it; give its outputs."""

    def region(
        self,
        graph: onnx.GraphProto,
        inputs: Sequence[tuple[str, TensorType]],
        constants: Mapping[str, npt.NDArray[Any]],
        opset: int,
        entries: Callable[[Sequence[Value]], Mapping[str, Entry]] | None = None,
    ) -> Region:
        """Import a nested graph by itself: its inputs are values of given types, constants, or
        `entries` made of those values."""

    def branch(self, graph: onnx.GraphProto, opset: int) -> Region:
        """Import a nested graph without inputs, for the sizes at which its questions have the
        typical answer: other sizes end the run that enters it."""

    def settles(self, error: UnresolvedShapeError) -> bool:
        """Whether the error is a question about the model's dims, which begins the import again."""

    def inputs_behind(self, values: Sequence[Value]) -> tuple[str, ...]:
        """The model's inputs that some values are computed from."""

    def viewed(self, region: Region, value: Value, shape: Shape) -> Value:
        """A value of the region in a shape that is the same where a run enters it."""

    def finished(
        self, region: Region, name: str, captured: Sequence[Value], outputs: Sequence[Value]
    ) -> Graph:
        """The region as a closed graph with these outputs, which takes `captured` last."""

    def counted(self, bound: Extent | None, usual: int | None = None) -> Extent:
        """A new extent, up to `bound`, that the data decides; None: there is room for it. `usual`
        is as for `sizes`."""

    def found_in(self, region: Region) -> frozenset[str]:
        """The names of the symbols that nodes of the region define."""

    def computed(self, value: Value) -> Value:
        """`value`, or where it is a constant that depends on sizes, what computes it."""

    def append(self, node: Node) -> None:
        """Add a node whose values are defined."""

    def nodes(self) -> tuple[Node, ...]:
        """Those imported so far, of the graph or region at hand."""


Upgrade: TypeAlias = Callable[[RawNode, int, Regions], list[RawNode]]


def ints(values: Any) -> npt.NDArray[Any]:
    """Integers and dims as the operators take them."""
    return as_array(values, DType.I64)
