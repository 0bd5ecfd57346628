"""The builder of a typed graph, which a frontend drives node by node.

A frontend reads a model of some format; the builder types its nodes, folds constants and sizes,
and settles the questions of operators about open dims:

    def build(b: Builder) -> None:                     # runs until no question is left
        x = b.input("x")                               # f32[batch, 3, h, w]
        weights = b.constant(np.ones((8, 3, 3, 3), np.float32))
        (y,) = b.node("Conv", [x, weights], {"pads": (1, 1, 1, 1)}, origin="conv1")
        b.output("y", b.add("Relu", y))

    model = built(resolve([Declared("x", DType.F32, ("batch", 3, "h", "w"))], {}), build)

Values go by names: those of the model, and new ones that the builder returns. Operators, operands
and attributes are those of `farrier.ops`, which are frozen: a frontend rewrites its own into them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.artifact.declaration import ITEMS, LENGTHS
from farrier.errors import InvalidModelError
from farrier.frontends.builder import blame, branches, elements, gradients, loops, nodes
from farrier.frontends.builder.data_dims import Defined
from farrier.frontends.builder.data_sizes import DataSizes
from farrier.frontends.builder.limits import MAX_TENSOR_BYTES, check_size
from farrier.frontends.builder.loops import Iteration
from farrier.frontends.builder.model import ImportedModel
from farrier.frontends.builder.names import Absent, Entry, Listed, Strings
from farrier.frontends.builder.names import Sequence as Tensors
from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites import rewritten
from farrier.frontends.builder.rewrites.numbers import Operand, name_of
from farrier.frontends.builder.signature import Signature
from farrier.frontends.builder.symbolic import as_array, has_dims, parts
from farrier.frontends.builder.values import Values
from farrier.ir.dim import Extent, Question
from farrier.ir.graph import Node, Value
from farrier.ir.sizes import Demand
from farrier.ir.types import DType, Shape


class Builder:
    """A graph under construction, and the regions in it.

    A frontend uses `input`, `constant`, `node`, `if_`, `loop`, `gradients` and `output`; whoever
    rewrites its nodes into Farrier's form, `add` and the rest, which belong to the node at hand.
    `signature` is that of the graph or region at hand, `whole` that of the model."""

    def __init__(self, signature: Signature) -> None:
        self.signature = self.whole = signature
        self.values = Values()
        self.data_sizes = DataSizes(self)
        self.conditions: frozenset[str] = frozenset()  # Names of values that select branches.
        self.most_bytes = MAX_TENSOR_BYTES  # The most of one tensor.
        self.at_hand = self._begun = RawNode("", [], [], {}, "")
        self._extents: dict[str, Value] = {}  # Run-time forms of constants of dims.
        self._outputs: dict[str, Value] = {}
        self._lists: dict[str, int] = {}  # The axes of items, by output.
        self._strings = set(signature.strings)
        values = self.values
        self.inputs = {name: values.define(kind, name) for name, kind in signature.types.items()}
        for name, kind in signature.types.items():
            check_size(kind, f"input {name!r}")
            if kind.is_static and not kind.size:
                empty = np.empty(kind.static_shape, kind.dtype.numpy)
                values.constant(empty, name=name)
            if name in self._strings:
                values.names[name] = Strings(values.names[name])

    # The graph -----------------------------------------------------------------------------------

    def input(self, name: str) -> str:
        """Return the name of an input. Inputs are declared before the graph is built, because one
        dim may stand in several of them, and a user may give their sizes."""
        if name not in self.inputs:
            declared = ", ".join(map(repr, self.inputs)) or "none"
            raise InvalidModelError(f"no input {name!r} is declared", hint=f"declared: {declared}")
        return name

    def constant(self, data: npt.NDArray[Any], dtype: DType | None = None) -> str:
        """Define a constant and return its name. `dtype` is needed where elements are dims, and the
        constant is none of i64."""
        name = self.values.fresh()
        self.values.constant(data, dtype, name)
        return name

    def node(
        self,
        op: str,
        inputs: Sequence[Operand],
        attrs: Mapping[str, Any] | None = None,
        *,
        origin: str,
        outputs: int = 1,
        selects: bool = False,
    ) -> tuple[str, ...]:
        """Add a node of the model and return the names of its outputs. An omitted operand is "".
        Extents may take the place of names: `[b.shape(x)[0], -1, count]` is a vector of i64, whose
        `count` names a scalar that is known only at run time.

        A node that `selects` is the condition of `if_`: if it depends on sizes that values decide,
        it is computed at run time, and both branches are built. Raises a FarrierError that names
        the operator and `origin`."""
        results = [self.fresh() for _ in range(outputs)]
        if selects:
            self.conditions |= frozenset(results)
        node = RawNode(op, [], results, dict(attrs or {}), origin)
        with self.at(node):
            node.inputs += [name_of(operand, self) for operand in inputs]
            self.emit(node)
        return tuple(results)

    def if_(
        self,
        condition: str,
        then: Callable[[], Sequence[str]],
        otherwise: Callable[[], Sequence[str]],
        *,
        origin: str,
    ) -> tuple[str, ...]:
        """Add a choice between two regions and return the names of the results. `then` and
        `otherwise` add the nodes of a region, which may use all values around it, and return the
        names of its outputs. They may be called several times, or not at all if the condition is
        known."""
        with self.at(RawNode("If", [condition], [], {}, origin)):
            builds = [functools.partial(self._built, build) for build in (then, otherwise)]
            return self._named(branches.chosen(self, condition, builds))

    def loop(
        self,
        carried: Sequence[str],
        body: Callable[[str, Sequence[str], Sequence[str]], Iteration],
        *,
        trips: str = "",
        condition: str = "",
        scanned: Sequence[str] = (),
        origin: str,
    ) -> tuple[str, ...]:
        """Add a loop and return the names of what it carries at the end, then of what it stacks.

        `body` adds the nodes of one iteration: it takes the names of the iteration's number (i64),
        of the carried values, and of a slice of each of the `scanned` tensors along their first
        axis. `trips` bounds the number of iterations unless it is ""; a `condition` that is false,
        or what an iteration returns as `again`, ends the loop. The loop becomes a node with a
        region, or the nodes of its iterations if they are few, or carry tensors of changing
        shapes."""
        count = len(carried)

        def build(arguments: loops.Given) -> list[Entry]:
            number, *items = self._named([arguments.number, *arguments.items])
            done = body(number, items[:count], items[count:])
            again = done.again or self.constant(np.array(True))
            return [self.entry(name) for name in (again, *done.carried, *done.stacked)]

        with self.at(RawNode("Loop", [trips, condition, *carried], [], {}, origin)):
            loop = loops.Loop(
                self,
                build,
                trips=loops.scalar(self, trips),
                condition=loops.scalar(self, condition),
                carried=tuple(map(self.entry, carried)),
                scanned=tuple(self.values.names[name] for name in scanned),
            )
            return self._named(loop.outputs())

    def gradients(self, target: str, sources: Sequence[str], *, origin: str) -> tuple[str, ...]:
        """Add the gradients of `target`, of the sum of its elements, by each of `sources`, and
        return their names. Raises a FarrierError for an operator without a derivative."""
        with self.at(RawNode("Gradient", [target, *sources], [], {}, origin)):
            by = [self.values.names[name] for name in sources]
            return tuple(gradients.gradients(self, self.values.names[target], by))

    def output(self, name: str, value: str) -> None:
        """Return a value from the graph as the output `name`."""
        self.returns(name, self.entry(value))

    def returns(self, name: str, entry: Entry) -> None:
        """Return an entry from the graph: those of a sequence as `name.0`, `name.1`, …, and nothing
        for an optional that is absent."""
        match entry:
            case Value():
                self._outputs[name] = self.computed(entry)
            case Strings(codes):
                self._strings.add(name)
                self._outputs[name] = codes
            case Tensors(items):
                for position, item in enumerate(items):
                    self.returns(f"{name}.{position}", item)
            case Listed(whole, lengths, axis):
                self._lists[name] = axis
                self._outputs[f"{name}.{ITEMS}"] = self.computed(whole)
                if lengths is not None:
                    self._outputs[f"{name}.{LENGTHS}"] = self.computed(lengths)
            case Absent():
                pass

    def finish(self) -> ImportedModel:
        """Return the model, without what no output depends on."""
        values, signature = self.values, self.signature
        inputs, outputs = tuple(self.inputs.values()), list(self._outputs.values())
        return ImportedModel(
            values.closed(values.body, "model", inputs, outputs),
            tuple(signature.types),
            tuple(self._outputs),
            signature.dims,
            frozenset(self._strings),
            signature.told(),
            tuple(signature.names[name] for name in signature.types),
            values.names.outermost,
            signature.notices,
            self._lists,
        )

    # Nodes ---------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """The node that was begun last, as messages name it."""
        return self._begun.where

    @property
    def defined(self) -> Mapping[str, Defined]:
        """The sizes that values decide, in the order of their definition, by symbol."""
        return self.data_sizes.defined

    def at(self, node: RawNode) -> blame.AtHand:
        """Add nodes for this one of the model; errors within the context name it."""
        self._begun = node
        self._set_at_hand(node)
        self.data_sizes.deferred = None
        return blame.AtHand(self, node)

    def add(self, op: str, *inputs: Operand, **attrs: Any) -> str:
        """Add a node for the one at hand and return the name of its output; operands are as for
        `node`."""
        names, result = [name_of(operand, self) for operand in inputs], self.fresh()
        self.emit(RawNode(op, names, [result], attrs, self.at_hand.origin))
        return result

    def emit(self, node: RawNode) -> None:
        """Add a node in Farrier's form, or others where values decide sizes that its operator needs
        (`rewrites`); its outputs may have names."""
        nodes.emit(self, rewritten(node, self))

    def is_read(self, name: str) -> bool:
        """Return whether any node or output of the model reads the value."""
        return True

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes added so far, of the graph or region at hand."""
        return tuple(self.values.body.nodes)

    @contextlib.contextmanager
    def returning(self) -> Iterator[None]:
        """Within it other nodes of the model are built, maybe in vain."""
        at_hand = self.at_hand
        try:
            yield
            self._begun = at_hand
        finally:
            self._set_at_hand(at_hand)

    def inlined(self, build: Callable[[], Sequence[Entry]]) -> list[Entry]:
        """Build a nested graph as a part of the graph around it; return its outputs."""
        at_hand = self.at_hand
        with self.values.names.nested():
            outputs = list(build())
        self._set_at_hand(at_hand)
        return outputs

    # Values --------------------------------------------------------------------------------------

    def fresh(self) -> str:
        """Return a name for a new value."""
        return self.values.fresh()

    def shape(self, name: str) -> Shape:
        """Return the shape of a value."""
        return self.values.names[name].type.shape

    def dtype(self, name: str) -> DType:
        """Return the element type of a value."""
        return self.values.names[name].type.dtype

    def data(self, name: str) -> npt.NDArray[Any] | None:
        """Return the elements of a constant, or None if they are known only at run time."""
        return self.values.known.get(self.values.names[name].name) if name else None

    def known(self, value: Value | None) -> npt.NDArray[Any] | None:
        """Return the elements of a constant, or None if they are known only at run time."""
        return None if value is None else self.values.known.get(value.name)

    def entry(self, name: str) -> Entry:
        """Return what a name stands for."""
        return self.values.names.entry(name)

    def bind(self, name: str, entry: Entry) -> str:
        """Let a name, or a new one for "", stand for an entry, and return it."""
        name = name or self.fresh()
        self.values.names[name] = self.data_sizes.held(entry)
        return name

    # Sizes ---------------------------------------------------------------------------------------

    def sizes(
        self, name: str, bounds: Sequence[Extent | None] = (), usual: int | None = None
    ) -> npt.NDArray[Any]:
        """Return the elements of an integer tensor as extents. Elements that are known only at run
        time become symbols, whose values a run computes: none may be negative, or more than its
        bound (None: any size for which there is room). Code is made for the `usual` size, which is
        also the first room for a symbol without a bound; if it is None, for the bound or the size
        that `first_room` returns."""
        return self.data_sizes.known(name, bounds, usual)

    def counted(self, bound: Extent | None, usual: int | None = None) -> Extent:
        """Return a new extent, up to `bound`, that the data decides; None: there is room for it.
        `usual` is as for `sizes`."""
        return self.data_sizes.counted(bound, usual)

    def elements(self, name: str) -> list[Extent | str]:
        """Return the elements of an integer tensor, flattened: extents if they are known, and
        otherwise names of i64 scalars."""
        return elements.named_elements(self, name)

    def scalars(self, name: str) -> list[Any]:
        """Return the elements of a tensor, flattened: numbers, dims and shares if they are known,
        and otherwise names of scalars of its type."""
        return elements.scalars(self, name)

    def filled(self, name: str) -> int | None:
        """Return the number that all elements of an integer tensor equal, or None if unknown."""
        return elements.filled(self.values, self.values.names[name])

    def require(
        self,
        name: Operand,
        sizes: Sequence[Extent],
        demands: Demand = Demand.EXACT,
        needs: str = "",
    ) -> None:
        """Add a check that ends a run unless the elements of an integer tensor equal `sizes`, or
        are in the relation `demands` to them. `needs` describes the requirement; "" stands for
        sizes."""
        self.data_sizes.require(name, sizes, demands, needs)

    def defers(self, question: Question) -> None:
        """Note a question about dims whose answer would make the sizes that the node at hand
        defines follow from shapes. It is asked if nothing else settles a question about these."""
        self.data_sizes.deferred = self.data_sizes.deferred or question

    def unknown(self, name: Operand) -> str:
        """Return the value, computed at run time if it is a constant that depends on sizes."""
        return self.bind("", self.computed(self.values.names[name_of(name, self)]))

    def computed(self, value: Value) -> Value:
        """Return the value or, if it is a constant that depends on sizes, what computes it."""
        values = self.values
        if value.name in values.bound or not has_dims(values.known.get(value.name)):
            return value
        if value.name not in self._extents:
            self._extents[value.name] = self._computed(value)
        return self._extents[value.name]

    def _computed(self, value: Value) -> Value:
        whole, below = parts(self.values.known[value.name])
        if below is not None:
            operands = [self.fresh(), self.fresh()]
            for name, part in zip(operands, (whole, below), strict=True):
                self.values.constant(as_array(part, value.type.dtype), value.type.dtype, name)
            return self.values.names[self.add("Div", *map(self.unknown, operands))]
        extents = self.values.define(value.type)
        self.values.append(Node("Extents", (value,), (extents,)))
        return extents

    def _set_at_hand(self, node: RawNode) -> None:
        self.at_hand, self.values.origin = node, node.origin

    def _built(self, build: Callable[[], Sequence[str]]) -> list[Entry]:
        return [self.entry(name) for name in build()]

    def _named(self, entries: Sequence[Entry]) -> tuple[str, ...]:
        return tuple(self.bind("", entry) for entry in entries)
