"""Loops: a node with a region or, where shapes require it, the unrolled iterations.

A loop with a constant trip count is unrolled if it is small, or if it carries values other than
tensors of constant shape. A sequence that grows in any other loop becomes a growing tensor
(`listed.py`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from farrier.errors import UnresolvedShapeError
from farrier.frontends.builder.blame import inputs_behind
from farrier.frontends.builder.limits import MAX_UNROLLED
from farrier.frontends.builder.listed import listed
from farrier.frontends.builder.names import Entry, Listed, entry_of, form_of, tensors_of
from farrier.frontends.builder.names import Sequence as Tensors
from farrier.frontends.builder.regions import (
    UNFIT,
    Region,
    append,
    captures_of,
    closed,
    defined_in,
    region,
)
from farrier.ir import control
from farrier.ir.dim import Dim, Extent, Undecided, symbols
from farrier.ir.graph import Node, Value
from farrier.ir.types import DType, TensorType
from farrier.ops import Mismatch, NotStatic, NotSupported
from farrier.ops.operator import to_extents

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder

_SMALL = 64  # The most nodes of a loop that is unrolled by choice.


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """The arguments of one iteration of a loop: its number; the condition (the constant true), or
    None if the loop has no condition; and the carried values, followed by a slice of each scanned
    tensor."""

    number: Entry
    goes_on: Entry | None
    items: tuple[Entry, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Iteration:
    """The results of one iteration of a loop, by name. `carried` are the values for the next
    iteration. `stacked` are values that are stacked, over all iterations, along a new first axis.
    `again` is the condition of another iteration; "" means always true."""

    carried: Sequence[str]
    stacked: Sequence[str] = ()
    again: str = ""


_SCALAR = TensorType(DType.I64, ())


def _undeclared() -> Sequence[TensorType]:
    raise NotStatic("it never runs, and the types of what it stacks are unknown", ())


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop of a model. `build` adds the nodes of one iteration.

    `build` returns the results of an iteration: first the condition of another iteration, if
    `tests` is true; then the carried values; then the values to stack. `number` is the type of the
    iteration's number. `declared` returns the types of the values to stack, for a loop that never
    runs. `trips` is the maximum number of iterations, and `condition` is tested before the first
    one; None if absent.
    """

    builder: Builder
    build: Callable[[Given], Sequence[Entry]]
    trips: Value | None
    condition: Value | None
    carried: tuple[Entry, ...]
    scanned: tuple[Value, ...] = ()
    tests: bool = True
    number: TensorType = _SCALAR
    declared: Callable[[], Sequence[TensorType]] = _undeclared

    def outputs(self) -> list[Entry]:
        """Add the loop and return the carried values at its end, then the stacked ones."""
        trips = self._known(self.trips)
        starts = None if self.condition is None else self._known(self.condition)
        if self.condition is not None and starts == 0:
            trips = 0
        reason, asked = "what it carries changes its type", None
        loop = self._with_lists(trips)
        if loop is not None:
            try:
                outputs = loop._as_node(trips)
            except UNFIT as error:
                if trips == 0:
                    return self._never()
                if not isinstance(error, UnresolvedShapeError):
                    raise
                reason, asked = error.message, error
            else:
                if outputs is not None:
                    return outputs
        waits = self.trips is not None or (self.condition is not None and not starts)
        if isinstance(trips, Dim) or (trips is None and waits):
            if asked is not None and _settles(self.builder, asked):
                raise self._with_deciding(asked) from asked.__cause__
            raise NotStatic(f"{reason}, and its trip count is known only at run time")
        return self._unrolled(trips)

    def _as_node(self, trips: Extent | None) -> list[Entry] | None:
        types = [value.type for entry in self.carried for value in tensors_of(entry)]
        return self._from_region(self._region(types), types, trips)

    def _with_deciding(self, error: UnresolvedShapeError) -> UnresolvedShapeError:
        """Return the error with further inputs in `deciding`, the list of inputs that the user
        could fix: the inputs from which the trip count is computed."""
        values = [value.name for value in (self.trips, self.condition) if value is not None]
        deciding = (*error.deciding, *inputs_behind(self.builder, values))
        return UnresolvedShapeError(
            error.message, hint=error.hint, deciding=tuple(dict.fromkeys(deciding))
        )

    def _with_lists(self, trips: Extent | None) -> Loop | None:
        """Return the loop with each sequence that grows in the body replaced by a `Listed` tensor.
        Return None if the loop should be unrolled instead: the trip count is constant, and the
        items have equal lengths or cannot be stored in a tensor."""
        if all(isinstance(entry, Value) for entry in self.carried):
            return self
        try:
            loop = self._listing()
        except UNFIT:
            if isinstance(trips, int):
                return None
            raise
        except (Mismatch, NotSupported) as error:
            if isinstance(trips, int):
                return None
            raise NotStatic(f"{error}, and its trip count is known only at run time") from error
        lists = [entry for entry in loop.carried if isinstance(entry, Listed)]
        if isinstance(trips, int) and all(each.lengths is None for each in lists):
            return None
        return loop

    def _listing(self) -> Loop:
        types = [value.type for entry in self.carried for value in tensors_of(entry)]
        body = self._region(types)
        own = defined_in(self.builder, body)
        carried = []
        for entry, after in zip(self.carried, body.outputs[self.tests :], strict=False):
            if isinstance(entry, Tensors) and isinstance(after, Tensors):
                kinds = [item.type for item in after.items if isinstance(item, Value)]
                if len(after.items) != len(entry.items):
                    entry = listed(entry.items, kinds, own, self.builder)
            carried.append(entry)
        return dataclasses.replace(self, carried=tuple(carried))

    def _region(self, types: Sequence[TensorType]) -> Region:
        """Build the body as a region in which the carried tensors have the types `types`."""
        slices = [TensorType(v.type.dtype, v.type.shape[1:]) for v in self.scanned]

        def build(inputs: Sequence[Value]) -> Sequence[Entry]:
            rest = iter(inputs[1:])
            carried = [entry_of(form_of(entry), rest) for entry in self.carried]
            goes_on = self.builder.values.constant(np.array(True)) if self.tests else None
            return self.build(Given(inputs[0], goes_on, (*carried, *rest)))

        return region(self.builder, [self.number, *types, *slices], build)

    def _from_region(
        self, body: Region, types: Sequence[TensorType], trips: Extent | None
    ) -> list[Entry] | None:
        """Add a node with the region `body`, in which the carried tensors have the types `types`,
        and return its outputs. If extents change in an iteration, the body is first built again
        with symbols for them. Return None if the loop must be unrolled, or is small enough that it
        should be."""
        builder, forms = self.builder, [form_of(entry) for entry in self.carried]
        outputs = list(body.outputs)
        again = outputs.pop(0) if self.tests and outputs else None
        stacked = outputs[len(forms) :]
        is_typed = [form_of(entry) for entry in outputs[: len(forms)]] == forms
        if not is_typed or not all(isinstance(entry, Value | None) for entry in (again, *stacked)):
            return None
        returned = [value for entry in outputs for value in tensors_of(entry)]
        carried = [value for entry in self.carried for value in tensors_of(entry)]
        count = len(carried)
        goes_on = True if again is None else self._known(again)
        after = [value.type for value in returned[:count]]
        grown = _grown([value.type for value in carried], types, after, builder)
        size = _size(body.body.nodes)
        if grown is None:
            return None
        if grown != list(types):
            if isinstance(trips, int) and goes_on and trips * size <= MAX_UNROLLED:
                return None
            return self._from_region(self._region(grown), grown, trips)
        parts = returned[count:]
        if trips == 0:
            return [*self.carried, *(self._empty(part.type) for part in parts)]
        small = isinstance(trips, int) and trips * size <= _SMALL
        if goes_on == 0 or (goes_on and small):
            return None
        self._check_stacks(body, types, carried, parts)
        always = goes_on and (self.condition is None or self._known(self.condition))
        ran, trips_value = self._ran(trips, bool(always)) if parts else (trips, self.trips)
        extent = str(ran) if parts and trips_value is self.trips and ran != trips else ""
        first = None if goes_on or again is None else tensors_of(again)[0]
        node = self._operands_of(body, types, first, returned, trips_value, ran, extent)
        append(control.make_loop(node, builder.at_hand.origin), builder)
        results = iter(node.results)
        return [*(entry_of(form, results) for form in forms), *node.stacks]

    def _check_stacks(
        self,
        body: Region,
        types: Sequence[TensorType],
        carried: Sequence[Value],
        parts: Sequence[Value],
    ) -> None:
        """Raise NotStatic if a stacked value's shape can differ between iterations."""
        own = defined_in(self.builder, body) | _symbols_of(types)
        own -= _symbols_of([value.type for value in carried])
        for part in parts:
            if not own.isdisjoint(_symbols_of([part.type])):
                raise NotStatic(f"it stacks {part.type.shape}, which differs in each iteration", ())

    def _operands_of(
        self,
        of: Region,
        types: Sequence[TensorType],
        again: Value | None,
        returned: Sequence[Value],
        trips: Value | None,
        ran: Extent | None,
        extent: str,
    ) -> control.Loop:
        """Return the operands, results and region of the loop's node. `types` are the types of the
        carried values in the region `of`. `again` is the condition of another iteration. `returned`
        are the carried values after an iteration, then the values to stack. `ran` is the number of
        iterations as an extent, which is the first extent of the stacks."""
        builder = self.builder
        carried = [value for entry in self.carried for value in tensors_of(entry)]
        count, both = len(carried), len(carried) + len(self.scanned)
        captured = captures_of([of], builder)
        first = [] if again is None else [again]
        body = closed(builder, of, "body", captured, [*first, *returned])
        inside, parts = body.inputs[1:], returned[count:]
        return control.Loop(
            trips=None if trips is None else builder.computed(trips),
            condition=None if self._known(self.condition) else self.condition,
            carried=tuple(map(builder.computed, carried)),
            scanned=self.scanned,
            captured=captured,
            results=_results([value.type for value in carried], types, builder),
            stacks=tuple(
                builder.values.define(TensorType(part.type.dtype, (ran, *part.type.shape)))
                for part in parts
                if ran is not None
            ),
            body=body,
            iteration=body.inputs[0],
            current=inside[:count],
            slices=inside[count:both],
            seen=inside[both:],
            again=again,
            next=tuple(returned[:count]),
            parts=tuple(parts),
            extent=extent,
        )

    def _never(self) -> list[Entry]:
        """Return the outputs of a loop without iterations, whose body cannot be typed."""
        return [*self.carried, *map(self._empty, self.declared())]

    def _ran(self, trips: Extent | None, always: bool) -> tuple[Extent | None, Value | None]:
        """Return the number of iterations of a loop that stacks values, as an extent, and the
        operand that limits it. With `always`, no condition can end the loop early, so the number is
        the trip count; otherwise it is a new data-dependent extent."""
        if not always:
            return self.builder.counted(trips), self.trips
        if trips is not None:
            return trips, self.trips
        if self.trips is None:
            raise NotStatic("it never ends", ())
        # The number of iterations is the value, which becomes an extent.
        builder = self.builder
        name = builder.add("Max", builder.bind("", self.trips), 0)
        trips_value = builder.values.names[builder.constant(builder.sizes(name))]
        (ran,) = to_extents(builder.sizes(name))
        return ran, trips_value

    def _unrolled(self, trips: int | None) -> list[Entry]:
        """Build the body once for each iteration, until the trip count or a false condition ends
        the loop. Return the loop's outputs."""
        builder, carried = self.builder, list(self.carried)
        rows: list[list[str]] = []
        goes: Extent | None = 1
        number = 0
        while goes and (trips is None or number < trips):
            if number == MAX_UNROLLED:
                raise NotStatic(f"it has no fixed shapes, and runs more than {number} times")
            arguments = self._given(number, carried)
            outputs = builder.inlined(functools.partial(self.build, arguments))
            if self.tests:
                goes = self._known(outputs.pop(0))
                if goes is None:
                    raise NotStatic("it has no fixed shapes, and when it ends is unknown")
            carried, parts = outputs[: len(carried)], outputs[len(carried) :]
            rows.append([builder.bind("", part) for part in parts])
            number += 1
        if not rows:
            raise NotStatic("it never runs, and the types that it would return are unknown")
        stacks = [stacked(parts, builder) for parts in zip(*rows, strict=True)]
        return [*carried, *map(builder.entry, stacks)]

    def _given(self, number: int, carried: Sequence[Entry]) -> Given:
        """Return the arguments of iteration `number`."""
        builder = self.builder
        index = builder.constant(np.full(self.number.static_shape, number, np.int64))
        goes_on = builder.entry(builder.constant(np.array(True))) if self.tests else None
        parts = [
            builder.entry(builder.add("Gather", builder.bind("", whole), index, axis=0))
            for whole in self.scanned
        ]
        return Given(builder.entry(index), goes_on, (*carried, *parts))

    def _known(self, entry: Entry | None) -> Extent | None:
        """Return the value of a scalar if it is constant, else None."""
        data = self.builder.values.known.get(entry.name) if isinstance(entry, Value) else None
        if data is None:
            return None
        (scalar,) = data.reshape(-1)
        return scalar if isinstance(scalar, Dim) else int(scalar)

    def _empty(self, part: TensorType) -> Entry:
        shape = (0, *part.static_shape)
        return self.builder.entry(self.builder.constant(np.empty(shape, part.dtype.numpy)))


def _settles(builder: Builder, error: UnresolvedShapeError) -> bool:
    """Check whether the error is about an undecided comparison of sizes that another import of the
    model, with narrower ranges of the dims, can decide."""
    asked = error.__cause__
    return isinstance(asked, Undecided) and builder.signature.settles(
        asked.question, builder.data_sizes.defined
    )


def _symbols_of(types: Iterable[TensorType]) -> set[str]:
    return {symbol.name for kind in types for symbol in symbols(kind.shape)}


def _size(nodes: Sequence[Node]) -> int:
    """Return the number of nodes, including those of nested regions."""
    return sum(1 + sum(_size(region.nodes) for region in node.regions) for node in nodes)


def _grown(
    initial: Sequence[TensorType],
    current: Sequence[TensorType],
    after: Sequence[TensorType],
    builder: Builder,
) -> list[TensorType] | None:
    """Return types for the carried values that are valid in every iteration, or None if a dtype or
    rank changes. `initial` are the types before the loop, `current` the types in the present body,
    and `after` the types of the values that the body returns.

    An extent that changes becomes a new symbol. Extents that are equal both before and after an
    iteration get the same symbol.
    """
    extents: dict[tuple[Extent, Extent, Extent], Extent] = {}
    types = []
    for first, now, then in zip(initial, current, after, strict=True):
        if first.dtype is not then.dtype or first.rank != then.rank:
            return None
        shape = []
        for key in zip(first.shape, now.shape, then.shape, strict=True):
            start, present, end = key
            if present != start:
                # The extent is already a symbol, shared by all extents that were equal so far.
                is_shared = any(other[:2] == key[:2] for other in extents)
                extents.setdefault(key, builder.counted(None) if is_shared else present)
            elif end != present and key not in extents:
                extents[key] = builder.counted(None)
            shape.append(extents.get(key, present))
        types.append(TensorType(first.dtype, tuple(shape)))
    return types


def _results(
    initial: Sequence[TensorType], current: Sequence[TensorType], builder: Builder
) -> tuple[Value, ...]:
    """Define the values for the carried values at the end of the loop. `initial` are their types
    before the loop, and `current` their types in the body. Extents in which these differ become new
    symbols."""
    extents: dict[Extent, Extent] = {}
    results = []
    for first, now in zip(initial, current, strict=True):
        shape = list(first.shape)
        for axis, (start, present) in enumerate(zip(first.shape, now.shape, strict=True)):
            if present != start:
                (symbol,) = symbols((present,))
                if present not in extents:
                    extents[present] = builder.counted(symbol.high)
                shape[axis] = extents[present]
        results.append(builder.values.define(TensorType(first.dtype, tuple(shape))))
    return tuple(results)


def scalar(builder: Builder, name: str) -> Value | None:
    """Return the tensor with a name, or None for the name ""."""
    return builder.values.names[name] if name else None


def stacked(names: Sequence[str], builder: Builder) -> str:
    """Stack tensors of equal shapes along a new first axis."""
    return builder.add("Concat", *(builder.add("Unsqueeze", n, [0]) for n in names), axis=0)
