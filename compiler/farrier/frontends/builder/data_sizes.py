"""The data-dependent sizes of a model: symbols for the elements of tensors that a run computes."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.data_dims import Defined
from farrier.frontends.builder.elements import Element, elements_of
from farrier.frontends.builder.names import Entry, with_tensors
from farrier.frontends.builder.symbolic import as_array
from farrier.ir.control import symbol_of
from farrier.ir.dim import (
    Atom,
    Extent,
    Question,
    Symbol,
    as_extent,
    dim,
    number,
    symbols,
    typical,
)
from farrier.ir.graph import Node, Value, attributes
from farrier.ir.sizes import Demand
from farrier.ir.types import DType
from farrier.ops.operator import to_extents
from farrier.options.shapes import MAX_EXTENT

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder
    from farrier.frontends.builder.rewrites.numbers import Operand

_FIRST_ROOM = (256, 32, 16, 8)


def first_room(beside: int) -> int:
    """Return the initial capacity of a data-dependent extent without an upper bound. The capacity
    is smaller if the shape has several such extents; `beside` is their number, including this one.
    A run that needs more memory allocates more."""
    return _FIRST_ROOM[min(max(beside, 1), len(_FIRST_ROOM)) - 1]


class DataSizes:
    """The data-dependent sizes of a model, and the checks of them.

    `defined` has the sizes by symbol, in the order of their definition. `deferred` is a comparison
    of dims whose result would make the sizes of the current node functions of the input shapes
    (`Builder.defers`).
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._values = builder.values
        self.defined: dict[str, Defined] = {}
        self.deferred: Question | None = None
        self._symbols = itertools.count()
        self._places: Counter[str] = Counter()  # The number of sizes by node.
        self._dims: dict[str, Extent] = {}  # The extents of narrowed symbols by name.
        self._reason = ""  # The reason why other sizes end a run.

    @property
    def places(self) -> dict[str, int]:
        """The number of sizes that each node has defined so far, by the node's origin. The next
        size of a node gets this number as a part of its key."""
        return dict(self._places)

    def restart(self, places: Mapping[str, int]) -> None:
        """Reset the numbers of sizes that nodes have defined to `places`, before a branch is built
        again, so that sizes of the branch get the same keys."""
        self._places = Counter(places)

    @contextmanager
    def because(self, reason: str) -> Iterator[None]:
        """Return a context in which errors of the checks that are added give `reason` as their
        explanation."""
        self._reason = reason
        try:
            yield
        finally:
            self._reason = ""

    def symbol(self) -> str:
        """Return a new name for the symbol of a data-dependent size."""
        return f"k{next(self._symbols)}"

    def known(
        self, name: str, bounds: Sequence[Extent | None] = (), usual: int | None = None
    ) -> npt.NDArray[Any]:
        """Return the elements of an integer tensor as extents, as `Builder.sizes` does."""
        value = self._values.names[name]
        if value.name not in self._values.known:
            elements = elements_of(self._values, value)
            limits = dict(zip(elements, bounds, strict=False))
            computed = [element for element in elements if isinstance(element, Element)]
            leaves = {element.value.name: element.value for element in computed}
            for leaf in leaves.values():
                own = [Element(leaf, at) for at in range(number(leaf.type.size))]
                self._bind(leaf, [self.counted(limits.get(at), usual, len(computed)) for at in own])
            if value.name not in leaves:
                self._values.note(value, list(map(self._known_element, elements)))
        return self._values.known[value.name]

    def counted(self, bound: Extent | None, usual: int | None = None, beside: int = 1) -> Extent:
        """Return a new data-dependent extent, as `Builder.counted` does; `beside` is the number of
        such extents in the same shape."""
        if bound is None:
            room = first_room(beside) if usual is None else usual
            bound = dim(f"c{next(self._symbols)}", 0, MAX_EXTENT, room)
        chosen = typical(bound) if usual is None else min(usual, typical(bound))
        extent = dim(self.symbol(), 0, bound, chosen)
        self.note(extent)
        return extent

    def note(self, extent: Extent) -> None:
        """Record an extent that consists of a data-dependent symbol as the next size that the
        current node defines."""
        symbol = symbol_of(extent)
        if symbol is not None:
            node = self._builder.at_hand
            key = (node.origin, self._places[node.origin])
            self.defined[symbol.name] = Defined(key, symbol, node.where, self.deferred)
            self._places[node.origin] += 1

    def require(
        self,
        name: Operand,
        sizes: Sequence[Extent],
        demands: Demand = Demand.EXACT,
        needs: str = "",
    ) -> None:
        """Add a check of the elements of an integer tensor, as `Builder.require` does."""
        values, builder = self._values, self._builder
        value = values.names[builder.add("Cast", name, to="i64")]
        array = as_array(list(sizes), DType.I64).reshape(value.type.static_shape)
        wanted = values.names[builder.constant(array)]
        out = values.define(value.type)
        more = {"demands": str(demands), "needs": needs} if needs else {}
        self._append_check("Require", value, wanted, out, **more)

    def _append_check(self, op: str, value: Value, wanted: Value, out: Value, **attrs: str) -> None:
        if self._reason:
            attrs["reason"] = self._reason
        origin = self._builder.at_hand.origin
        self._values.append(Node(op, (value, wanted), (out,), attributes(**attrs), (), origin))

    def held(self, entry: Entry) -> Entry:
        """Return the entry with the shapes of its tensors rewritten: each data-dependent size
        whose range the operators' comparisons restrict (`DataDim`) is replaced by its restricted
        extent."""
        return with_tensors(entry, self.held_tensor) if self._builder.signature.data else entry

    def held_tensor(self, value: Value) -> Value:
        """Return the tensor viewed in a shape in which each data-dependent size with a restricted
        range (`DataDim`) is replaced by its restricted extent."""
        if not self._builder.signature.data:
            return value
        body, instead = self._values.body, dict[Atom, Extent]()
        for symbol in symbols(value.type.shape):
            if self._narrowed_symbol(as_extent(symbol)) is not None:
                if symbol.name not in body.left:
                    builder = self._builder
                    name = builder.unknown([as_extent(symbol)])
                    body.left[symbol.name] = self._left_of(symbol, name)
                instead[symbol] = body.left[symbol.name]
        return self._values.view(value, instead, body) if instead else value

    def _known_element(self, element: Extent | Element) -> Extent:
        if isinstance(element, Element):
            return to_extents(self._values.known[element.value.name])[element.index]
        return element

    def _bind(self, value: Value, sizes: Sequence[Extent]) -> None:
        """Add a node that binds the symbols in `sizes` to the elements of a value at run time."""
        builder, whole = self._builder, value
        if value.type.dtype is not DType.I64:
            whole = self._values.names[builder.add("Cast", builder.bind("", value), to="i64")]
        if any(self._narrowed_symbol(size) for size in sizes):
            self._bind_each(value, whole, sizes)
            return
        self._values.note(value, sizes)
        symbols_of = self._values.names[builder.constant(self._values.known[value.name])]
        self._append_check("Bind", whole, symbols_of, self._values.define(whole.type))

    def _bind_each(self, value: Value, whole: Value, sizes: Sequence[Extent]) -> None:
        """Bind the symbols `sizes` to the elements of a value one at a time, because some of the
        symbols have restricted ranges (`DataDim`), which have to be checked."""
        builder = self._builder
        flat = builder.add("Reshape", builder.bind("", whole), builder.constant(np.array([-1])))
        left = []
        for place, size in enumerate(sizes):
            name = builder.add("Gather", flat, builder.constant(np.array([place])), axis=0)
            symbol = self._narrowed_symbol(size)
            if symbol is None:
                self._bind(self._values.names[name], [size])
            else:
                size = self._left_of(symbol, name)
            left.append(size)
        self._values.note(value, left)

    def _narrowed_symbol(self, extent: Extent) -> Symbol | None:
        """Return the symbol of which the extent consists, if it is a data-dependent size with a
        restricted range (`DataDim`). Return None for any other extent."""
        symbol = symbol_of(extent)
        defined = None if symbol is None else self.defined.get(symbol.name)
        narrowed = None if defined is None else self._builder.signature.data.get(defined.key)
        if symbol is None or narrowed is None or narrowed.named.symbol == symbol.name:
            return None
        return symbol

    def _left_of(self, symbol: Symbol, name: str) -> Extent:
        """Return the restricted extent that replaces a symbol. Also add the checks that end a run
        in which the symbol's value, the single element of the tensor `name`, is outside of the
        restricted range."""
        narrowed = self._builder.signature.data[self.defined[symbol.name].key]
        step, needs = narrowed.named.step, narrowed.needs
        extent = narrowed.extent(symbol.high, self._dims)
        for demands, limit in narrowed.demands(symbol.high, self._dims):
            self.require(name, (limit,), demands, needs.get(demands, ""))
        own = next((s for s in symbols((extent,)) if s.name == narrowed.named.symbol), None)
        if own is not None:
            self.defined[own.name] = dataclasses.replace(self.defined[symbol.name], symbol=own)
            self._dims[own.name] = as_extent(own)
            quotient = name
            if step > 1:
                builder = self._builder
                quotient = builder.add("Div", name, builder.constant(np.array([step])))
            self._bind(self._values.names[quotient], [as_extent(own)])
        if own is None or step > 1:
            self.require(name, (extent,), Demand.EXACT, needs.get(Demand.EXACT, ""))
        return extent
