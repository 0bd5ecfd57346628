"""The builder of a typed graph, to which a frontend adds nodes.

A frontend reads a model of some format. The builder infers types, folds constants and sizes, and
answers the operators' questions about symbolic dims, such as whether an axis is at least 3 long:

    def build(b: Builder) -> None:                     # It runs until no question is left.
        x = b.input("x")                               # f32[batch, 3, h, w]
        weights = b.constant(np.ones((8, 3, 3, 3), np.float32))
        (y,) = b.node("Conv", [x, weights], {"pads": (1, 1, 1, 1)}, origin="conv1")
        b.output("y", b.add("Relu", y))

    model = built(resolve([Declared("x", DType.F32, ("batch", 3, "h", "w"))], {}), build)

Values are identified by names: those of the model, and new ones that the builder returns.
Operators, operands and attributes are those of `farrier.ops`, a fixed set: a frontend translates
the operators of its format into them.
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
    """A graph under construction, including nested regions.

    A frontend calls `input`, `constant`, `node`, `if_`, `loop`, `gradients` and `output`. Rewrites
    of a node into Farrier's operators call `add` and the other methods, which act on the node being
    built. `signature` has the input types of the graph or region under construction, `whole` those
    of the model.
    """

    def __init__(self, signature: Signature) -> None:
        self.signature = self.whole = signature
        self.values = Values()
        self.data_sizes = DataSizes(self)
        self.conditions: frozenset[str] = frozenset()  # Names of values that select branches.
        self.most_bytes = MAX_TENSOR_BYTES  # The maximum size of one tensor.
        self.at_hand = self._begun = RawNode("", [], [], {}, "")
        self._extents: dict[str, Value] = {}  # Values that compute constants of dims.
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
        """Return the name of a model input. Inputs are declared before the graph is built, because
        a dim may occur in several inputs, and a user may fix its size."""
        if name not in self.inputs:
            declared = ", ".join(map(repr, self.inputs)) or "none"
            raise InvalidModelError(f"no input {name!r} is declared", hint=f"declared: {declared}")
        return name

    def constant(self, data: npt.NDArray[Any], dtype: DType | None = None) -> str:
        """Define a constant and return its name. `dtype` is needed only for an array of symbolic
        dims (object dtype) whose type is not i64."""
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
        """Add a node of the model and return the names of its outputs. An omitted operand is "". A
        sequence of extents may take the place of an operand: `[b.shape(x)[0], -1, count]` is a
        vector of i64, where `count` is the name of a scalar that is known only at run time.

        `selects` marks a node that computes the condition of an `if_`: if it depends on
        data-dependent sizes, it is computed at run time, and both branches are built. Raises a
        FarrierError that names the operator and `origin`.
        """
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
        """Add a conditional and return the names of its results. `then` and `otherwise` add the
        nodes of a branch, which may use all values around it, and return the names of its outputs.
        They may be called several times, or not at all if the condition is constant."""
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
        """Add a loop. Return the names of the carried values at its end, then those of the stacked
        values.

        `body` adds the nodes of one iteration. Its arguments are the names of the iteration's
        number (i64), of the carried values, and of a slice of each of the `scanned` tensors along
        the first axis. `trips` is an upper bound on the number of iterations, or "" if there is
        none. The loop ends when `condition`, or the result `again` of an iteration, is false. It
        becomes a node with a region. It is unrolled instead if its number of iterations is constant
        and either small, or the loop carries tensors of changing shapes.
        """
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
        """Add nodes that compute the gradients of the sum of `target`'s elements by each of
        `sources`, and return the gradients' names. Raises a FarrierError for an operator without a
        derivative."""
        with self.at(RawNode("Gradient", [target, *sources], [], {}, origin)):
            by = [self.values.names[name] for name in sources]
            return tuple(gradients.gradients(self, self.values.names[target], by))

    def output(self, name: str, value: str) -> None:
        """Make a value the graph's output `name`."""
        self.returns(name, self.entry(value))

    def returns(self, name: str, entry: Entry) -> None:
        """Make an entry an output of the graph. The items of a sequence become the outputs
        `name.0`, `name.1`, …; an optional without value has no output."""
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
        """Return the model without the nodes and constants on which no output depends."""
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
        """The node that was started last, as error messages name it."""
        return self._begun.where

    @property
    def defined(self) -> Mapping[str, Defined]:
        """The data-dependent sizes by symbol, in the order of their definition."""
        return self.data_sizes.defined

    def at(self, node: RawNode) -> blame.AtHand:
        """Return the context in which nodes for a node of the model are added; errors within it
        name the node."""
        self._begun = node
        self._set_at_hand(node)
        self.data_sizes.deferred = None
        return blame.AtHand(self, node)

    def add(self, op: str, *inputs: Operand, **attrs: Any) -> str:
        """Add a node while a node of the model is being built, and return the name of its output.
        Operands are as for `node`."""
        names, result = [name_of(operand, self) for operand in inputs], self.fresh()
        self.emit(RawNode(op, names, [result], attrs, self.at_hand.origin))
        return result

    def emit(self, node: RawNode) -> None:
        """Add a node of Farrier's operators. If an operand that must be known when compiling is
        computed at run time, equivalent nodes are added instead (`rewrites`). `node.outputs` are
        the names to which the outputs are bound; "" leaves an output without a name."""
        nodes.emit(self, rewritten(node, self))

    def is_read(self, name: str) -> bool:
        """Check whether any node or output of the model reads a value. This builder does not know
        later nodes and returns True; the builder for ONNX models returns the exact answer."""
        return True

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes added so far to the graph or region under construction."""
        return tuple(self.values.body.nodes)

    @contextlib.contextmanager
    def returning(self) -> Iterator[None]:
        """A context in which nodes of a nested graph are built; it restores the node being built
        afterwards."""
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
        """Return the elements of a constant value, or None if they are known only at run time."""
        return None if value is None else self.values.known.get(value.name)

    def entry(self, name: str) -> Entry:
        """Return the entry of a name: a tensor, a sequence, an optional or a tensor of strings."""
        return self.values.names.entry(name)

    def bind(self, name: str, entry: Entry) -> str:
        """Bind a name to an entry and return the name; "" stands for a new name."""
        name = name or self.fresh()
        self.values.names[name] = self.data_sizes.held(entry)
        return name

    # Sizes ---------------------------------------------------------------------------------------

    def sizes(
        self, name: str, bounds: Sequence[Extent | None] = (), usual: int | None = None
    ) -> npt.NDArray[Any]:
        """Return the elements of an integer tensor as extents. Elements known only at run time
        become new symbols, which a run binds to the computed values. A run ends with an error if a
        value is negative or more than its bound; a bound of None permits any size, and memory grows
        as needed. Code is optimized for the `usual` size, which is also the initial memory for a
        symbol without a bound. If `usual` is None, the bound or `first_room` takes its place."""
        return self.data_sizes.known(name, bounds, usual)

    def counted(self, bound: Extent | None, usual: int | None = None) -> Extent:
        """Return a new data-dependent extent of at most `bound`; None permits any size, for which
        memory grows as needed. `usual` has the same meaning as for `sizes`."""
        return self.data_sizes.counted(bound, usual)

    def elements(self, name: str) -> list[Extent | str]:
        """Return the elements of an integer tensor as a flat list: extents where they are known
        when compiling, otherwise names of i64 scalars."""
        return elements.named_elements(self, name)

    def scalars(self, name: str) -> list[Any]:
        """Return the elements of a tensor as a flat list: numbers, dims or quotients of dims where
        they are known when compiling, otherwise names of scalars of the tensor's dtype."""
        return elements.scalars(self, name)

    def filled(self, name: str) -> int | None:
        """Return the value that all elements of an integer tensor have, or None if they differ or
        are unknown."""
        return elements.filled(self.values, self.values.names[name])

    def require(
        self,
        name: Operand,
        sizes: Sequence[Extent],
        demands: Demand = Demand.EXACT,
        needs: str = "",
    ) -> None:
        """Add a check of an integer tensor at run time: the run ends with an error unless each
        element is in the relation `demands` to the corresponding element of `sizes` (by default
        equal). `needs` is the requirement as text for the error; by default it is derived from
        `sizes`."""
        self.data_sizes.require(name, sizes, demands, needs)

    def defers(self, question: Question) -> None:
        """Record that the result of the comparison `question` would make the sizes that the current
        node defines functions of the input shapes, instead of data-dependent sizes. The comparison
        is decided only if a later comparison of these sizes cannot be decided otherwise."""
        self.data_sizes.deferred = self.data_sizes.deferred or question

    def unknown(self, name: Operand) -> str:
        """Return the name of an operand, as an ordinary tensor. A constant with symbolic dims is
        replaced by the output of a node that computes it at run time."""
        return self.bind("", self.computed(self.values.names[name_of(name, self)]))

    def computed(self, value: Value) -> Value:
        """Return the value as an ordinary tensor: the output of a node that computes it at run time
        if it is a constant with symbolic dims, else the value itself."""
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
