"""Loop and Scan → nodes with regions, or where shapes need it, the nodes of their graphs.

A loop whose trip count is known is unrolled where it is small, and where what it carries is no
tensor of one shape. A sequence that grows in another loop is a tensor that does (`lists.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx

from farrier.errors import UnresolvedShapeError
from farrier.importer.limits import MAX_UNROLLED
from farrier.importer.names import Entry, Listed, entry_of, form_of, tensors_of
from farrier.importer.names import Sequence as Tensors
from farrier.importer.raw import RawNode
from farrier.importer.rewrites import lists
from farrier.importer.rewrites.regions import UNFIT, append, bind, captures_of
from farrier.importer.scope import Region, Regions, ints
from farrier.importer.tensors import dtype_of
from farrier.ir.control import Loop, make_loop
from farrier.ir.dim import Dim, Extent, number, symbols
from farrier.ir.graph import Node, Value
from farrier.ir.types import DType, TensorType
from farrier.ops import Mismatch, NotStatic, NotSupported
from farrier.ops.operator import to_extents

_SMALL = 64  # nodes that a loop may unroll to where it need not


def rewrite_loop(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    graph = node.attrs["body"]
    iteration, condition, *names = (info.name for info in graph.input)
    initial = [scope.entry(name) for name in node.inputs[2:]]
    if len(initial) != len(names):
        raise Mismatch(f"its body carries {len(names)} values, and it is given {len(initial)}")
    rank = len(graph.input[0].type.tensor_type.shape.dim)
    loop = _Loop(
        scope,
        opset,
        node.origin,
        graph,
        trips=_scalar(node.input(0), scope),
        condition=_scalar(node.input(1), scope),
        iteration=(iteration, TensorType(DType.I64, (1,) * rank)),
        goes_on=condition,
        carried=tuple(zip(names, initial, strict=True)),
        scanned=(),
    )
    bind(node.outputs, loop.outputs(), scope)
    return []


def rewrite_scan(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    if opset < 9:
        return _scan_of_batch(node, opset, scope)
    graph, count = node.attrs["body"], int(node.attrs["num_scan_inputs"])
    states = len(node.inputs) - count
    names = [info.name for info in graph.input]
    axes = node.attrs.get("scan_input_axes", (0,) * count)
    backwards = node.attrs.get("scan_input_directions", (0,) * count)
    scanned = [
        _turned(_moved(name, axis, 0, scope), back, scope)
        for name, axis, back in zip(node.inputs[states:], axes, backwards, strict=True)
    ]
    loop = _Loop(
        scope,
        opset,
        node.origin,
        graph,
        trips=_value(scope.constant(ints(scope.shape(scanned[0])[0])), scope),
        condition=None,
        iteration=("", TensorType(DType.I64, ())),
        goes_on=None,
        carried=tuple(zip(names, map(scope.entry, node.inputs[:states]), strict=False)),
        scanned=tuple((n, _value(x, scope)) for n, x in zip(names[states:], scanned, strict=True)),
    )
    results = loop.outputs()
    stacks = len(results) - states
    axes = node.attrs.get("scan_output_axes", (0,) * stacks)
    backwards = node.attrs.get("scan_output_directions", (0,) * stacks)
    for position, (axis, back) in enumerate(zip(axes, backwards, strict=True), states):
        whole = _turned(scope.bind("", results[position]), back, scope)
        results[position] = scope.entry(_moved(whole, 0, axis, scope))
    bind(node.outputs, results, scope)
    return []


def _scan_of_batch(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    """Before 9, axis 0 was a batch, whose items were scanned one by one."""
    lengths, *inputs = node.inputs
    if lengths:
        raise NotSupported("sequence_lens")
    results: list[list[str]] = []
    for item in range(number(scope.shape(inputs[0])[0])):
        index = scope.constant(ints(item))
        given = [scope.add("Gather", name, index, axis=0) for name in inputs]
        made = [scope.fresh() for _ in node.outputs]
        attrs = dict(node.attrs)
        attrs["scan_input_directions"] = attrs.pop("directions", (0,) * attrs["num_scan_inputs"])
        rewrite_scan(RawNode("Scan", given, made, attrs, node.origin), 9, scope)
        results.append(made)
    for name, items in zip(node.outputs, zip(*results, strict=True), strict=True):
        scope.bind(name, scope.entry(_stacked(items, scope)))
    return []


@dataclasses.dataclass(frozen=True)
class _Loop:
    """A Loop or Scan of a model: the names of its body, and what they stand for at first."""

    scope: Regions
    opset: int
    origin: str
    graph: onnx.GraphProto
    trips: Value | None
    condition: Value | None
    iteration: tuple[str, TensorType]
    goes_on: str | None  # the body's condition; None where it has none
    carried: tuple[tuple[str, Entry], ...]
    scanned: tuple[tuple[str, Value], ...]

    def outputs(self) -> list[Entry]:
        trips = self._known(self.trips)
        starts = None if self.condition is None else self._known(self.condition)
        if self.condition is not None and starts == 0:
            trips = 0
        reason, asked = "what it carries changes its type", None
        loop = self._with_lists(trips)
        if loop is not None:
            try:
                made = loop._as_node(trips)
            except UNFIT as error:
                if trips == 0:
                    return self._never()
                if not isinstance(error, UnresolvedShapeError):
                    raise
                reason, asked = error.message, error
            else:
                if made is not None:
                    return made
        waits = self.trips is not None or (self.condition is not None and not starts)
        if isinstance(trips, Dim) or (trips is None and waits):
            if asked is not None and self.scope.settles(asked):
                raise self._with_deciding(asked) from asked.__cause__
            raise NotStatic(f"{reason}, and its trip count is known only at run time")
        return self._unrolled(trips)

    def _as_node(self, trips: Extent | None) -> list[Entry] | None:
        types = [value.type for _, entry in self.carried for value in tensors_of(entry)]
        return self._from_region(self._region(types), types, trips)

    def _with_deciding(self, error: UnresolvedShapeError) -> UnresolvedShapeError:
        """The error, whose way out is also to make known how often the loop runs."""
        values = [value for value in (self.trips, self.condition) if value is not None]
        deciding = (*error.deciding, *self.scope.inputs_behind(values))
        return UnresolvedShapeError(
            error.message, hint=error.hint, deciding=tuple(dict.fromkeys(deciding))
        )

    def _with_lists(self, trips: Extent | None) -> _Loop | None:
        """The loop with one tensor for each sequence to which the body adds items; None where it is
        unrolled instead, because its trips are known and the items are of one length."""
        if all(isinstance(entry, Value) for _, entry in self.carried):
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
        lists = [entry for _, entry in loop.carried if isinstance(entry, Listed)]
        if isinstance(trips, int) and all(one.lengths is None for one in lists):
            return None
        return loop

    def _listing(self) -> _Loop:
        types = [value.type for _, entry in self.carried for value in tensors_of(entry)]
        region = self._region(types)
        own = self.scope.found_in(region)
        carried = []
        returned = region.outputs[self.goes_on is not None :]
        for (name, entry), after in zip(self.carried, returned, strict=False):
            if isinstance(entry, Tensors) and isinstance(after, Tensors):
                kinds = [item.type for item in after.items if isinstance(item, Value)]
                if len(after.items) != len(entry.items):
                    entry = lists.listed(entry.items, kinds, own, self.scope)
            carried.append((name, entry))
        return dataclasses.replace(self, carried=tuple(carried))

    def _region(self, types: Sequence[TensorType]) -> Region:
        """The body, where the tensors of what is carried are of these types."""
        carried = [("", kind) for kind in types]
        slices = [
            (name, TensorType(value.type.dtype, value.type.shape[1:]))
            for name, value in self.scanned
        ]
        constants = {} if self.goes_on is None else {self.goes_on: np.array(True)}
        inputs = [self.iteration, *carried, *slices]

        def entries(given: Sequence[Value]) -> dict[str, Entry]:
            rest = iter(given[1:])
            return {name: entry_of(form_of(entry), rest) for name, entry in self.carried}

        return self.scope.region(self.graph, inputs, constants, self.opset, entries)

    def _from_region(
        self, region: Region, types: Sequence[TensorType], trips: Extent | None
    ) -> list[Entry] | None:
        """The outputs of a node with the region, in which what is carried is of these types; None
        where the loop must be unrolled, or better is."""
        scope, forms = self.scope, [form_of(entry) for _, entry in self.carried]
        outputs = list(region.outputs)
        again = outputs.pop(0) if self.goes_on is not None and outputs else None
        stacked = outputs[len(forms) :]
        is_typed = [form_of(entry) for entry in outputs[: len(forms)]] == forms
        if not is_typed or not all(isinstance(entry, Value | None) for entry in (again, *stacked)):
            return None
        returned = [value for entry in outputs for value in tensors_of(entry)]
        carried = [value for _, entry in self.carried for value in tensors_of(entry)]
        count = len(carried)
        known = True if again is None else self._known(again)
        after = [value.type for value in returned[:count]]
        grown = _grown([value.type for value in carried], types, after, scope)
        size = _size(region.body.nodes)
        if grown is None:
            return None
        if grown != list(types):
            if isinstance(trips, int) and known and trips * size <= MAX_UNROLLED:
                return None
            return self._from_region(self._region(grown), grown, trips)
        parts = returned[count:]
        if trips == 0:
            kept = [entry for _, entry in self.carried]
            return [*kept, *(self._empty(part.type) for part in parts)]
        small = isinstance(trips, int) and trips * size <= _SMALL
        if known == 0 or (known and small):
            return None
        own = scope.found_in(region) | {s.name for kind in types for s in symbols(kind.shape)}
        own -= {s.name for value in carried for s in symbols(value.type.shape)}
        for part in parts:
            if any(symbol.name in own for symbol in symbols(part.type.shape)):
                raise NotStatic(f"it stacks {part.type.shape}, which differs in each iteration", ())
        always = known and (self.condition is None or self._known(self.condition))
        ran, trips_value = self._ran(trips, bool(always)) if parts else (trips, self.trips)
        captured = captures_of([region], scope)
        again = None if known else again
        first = [] if again is None else tensors_of(again)
        body = scope.finished(region, "body", captured, [*first, *returned])
        inside = body.inputs[1:]
        both = count + len(self.scanned)
        made = Loop(
            trips=None if trips_value is None else scope.computed(trips_value),
            condition=None if self._known(self.condition) else self.condition,
            carried=tuple(map(scope.computed, carried)),
            scanned=tuple(value for _, value in self.scanned),
            captured=captured,
            results=_results([value.type for value in carried], types, scope),
            stacks=tuple(
                scope.define(TensorType(part.type.dtype, (ran, *part.type.shape)))
                for part in parts
                if ran is not None
            ),
            body=body,
            iteration=body.inputs[0],
            current=inside[:count],
            slices=inside[count:both],
            seen=inside[both:],
            again=first[0] if first else None,
            next=tuple(returned[:count]),
            parts=tuple(parts),
            extent=str(ran) if parts and trips_value is self.trips and ran != trips else "",
        )
        append(make_loop(made, self.origin), scope)
        results = iter(made.results)
        return [*(entry_of(form, results) for form in forms), *made.stacks]

    def _never(self) -> list[Entry]:
        """The outputs of a loop that runs no iteration, and whose body cannot be typed: what is
        stacked has the type that the body declares. NotStatic where it declares none."""
        returned = self.graph.output[(self.goes_on is not None) + len(self.carried) :]
        stacks = []
        for info in returned:
            declared = info.type.tensor_type
            dims = [dim.dim_value for dim in declared.shape.dim if dim.HasField("dim_value")]
            if not declared.HasField("shape") or len(dims) < len(declared.shape.dim):
                raise NotStatic(f"it never runs, and its body does not declare {info.name!r}", ())
            kind = TensorType(dtype_of(declared.elem_type, f"{info.name!r}"), tuple(dims))
            stacks.append(self._empty(kind))
        return [*(entry for _, entry in self.carried), *stacks]

    def _ran(self, trips: Extent | None, always: bool) -> tuple[Extent | None, Value | None]:
        """How many iterations a loop runs that stacks, and the value that says how many it may;
        `always` that no condition ends it."""
        if not always:
            return self.scope.counted(trips), self.trips
        if trips is not None:
            return trips, self.trips
        if self.trips is None:
            raise NotStatic("it never ends", ())
        # As often as the value says: that is an extent.
        scope = self.scope
        name = scope.add("Max", scope.bind("", self.trips), scope.constant(ints(0)))
        trips_value = _value(scope.constant(scope.sizes(name)), scope)
        (ran,) = to_extents(scope.sizes(name))
        return ran, trips_value

    def _unrolled(self, trips: int | None) -> list[Entry]:
        """The body as often as it runs."""
        scope, carried = self.scope, [entry for _, entry in self.carried]
        stacked: list[list[str]] = []
        goes: Extent | None = 1
        number = 0
        while goes and (trips is None or number < trips):
            if number == MAX_UNROLLED:
                raise NotStatic(f"it has no fixed shapes, and runs more than {number} times")
            outputs = scope.inline(self.graph, self._given(number, carried), self.opset)
            if self.goes_on is not None:
                goes = self._known(outputs.pop(0))
                if goes is None:
                    raise NotStatic("it has no fixed shapes, and when it ends is unknown")
            carried, parts = outputs[: len(carried)], outputs[len(carried) :]
            stacked.append([scope.bind("", part) for part in parts])
            number += 1
        if not stacked:
            raise NotStatic("it never runs, and the types that it would return are unknown")
        stacks = [_stacked(parts, scope) for parts in zip(*stacked, strict=True)]
        return [*carried, *map(scope.entry, stacks)]

    def _given(self, number: int, carried: Sequence[Entry]) -> dict[str, Entry]:
        scope = self.scope
        name, kind = self.iteration
        index = scope.constant(np.full(kind.static_shape, number, np.int64))
        given = dict(zip((name for name, _ in self.carried), carried, strict=True))
        if name:
            given[name] = scope.entry(index)
        if self.goes_on is not None:
            given[self.goes_on] = scope.entry(scope.constant(np.array(True)))
        for name, whole in self.scanned:
            part = scope.add("Gather", scope.bind("", whole), index, axis=0)
            given[name] = scope.entry(part)
        return given

    def _known(self, entry: Entry | None) -> Extent | None:
        """A scalar that is known."""
        data = self.scope.known(entry) if isinstance(entry, Value) else None
        if data is None:
            return None
        (found,) = data.reshape(-1)
        return found if isinstance(found, Dim) else int(found)

    def _empty(self, part: TensorType) -> Entry:
        shape = (0, *part.static_shape)
        return self.scope.entry(self.scope.constant(np.empty(shape, part.dtype.numpy)))


def _size(nodes: Sequence[Node]) -> int:
    """The number of nodes, with those of the regions in them."""
    return sum(1 + sum(_size(region.nodes) for region in node.regions) for node in nodes)


def _grown(
    initial: Sequence[TensorType],
    current: Sequence[TensorType],
    after: Sequence[TensorType],
    scope: Regions,
) -> list[TensorType] | None:
    """Types for what a loop carries that hold in every iteration: an extent which changes is a
    symbol, one for those that are equal before and after. None where no type does."""
    known: dict[tuple[Extent, Extent, Extent], Extent] = {}
    made = []
    for first, now, then in zip(initial, current, after, strict=True):
        if first.dtype is not then.dtype or first.rank != then.rank:
            return None
        shape = []
        for key in zip(first.shape, now.shape, then.shape, strict=True):
            start, present, end = key
            if present != start:  # a symbol by now, for all that were alike
                alike = [k for k in known if k[:2] == key[:2]]
                known.setdefault(key, scope.counted(None) if alike else present)
            elif end != present and key not in known:
                known[key] = scope.counted(None)
            shape.append(known.get(key, present))
        made.append(TensorType(first.dtype, tuple(shape)))
    return made


def _results(
    initial: Sequence[TensorType], current: Sequence[TensorType], scope: Regions
) -> tuple[Value, ...]:
    """What a loop returns of what it carries: extents that change are symbols of their own."""
    known: dict[Extent, Extent] = {}
    results = []
    for first, now in zip(initial, current, strict=True):
        shape = list(first.shape)
        for axis, (start, present) in enumerate(zip(first.shape, now.shape, strict=True)):
            if present != start:
                (symbol,) = symbols((present,))
                if present not in known:
                    known[present] = scope.counted(symbol.high)
                shape[axis] = known[present]
        results.append(scope.define(TensorType(first.dtype, tuple(shape))))
    return tuple(results)


def _scalar(name: str, scope: Regions) -> Value | None:
    return _value(name, scope) if name else None


def _value(name: str, scope: Regions) -> Value:
    entry = scope.entry(name)
    if not isinstance(entry, Value):
        raise Mismatch(f"{name!r} is no tensor")
    return entry


def _moved(name: str, axis: int, to: int, scope: Regions) -> str:
    """The tensor with one axis moved."""
    rank = len(scope.shape(name))
    axis, to = axis % rank, to % rank
    order = [other for other in range(rank) if other != axis]
    order.insert(to, axis)
    return name if axis == to else scope.add("Transpose", name, perm=tuple(order))


def _turned(name: str, backwards: int, scope: Regions) -> str:
    """The tensor, its first axis backwards where that is wanted."""
    if not backwards:
        return name
    start, end, axis, step = ([-1], [np.iinfo(np.int64).min], [0], [-1])
    operands = (scope.constant(ints(each)) for each in (start, end, axis, step))
    return scope.add("Slice", name, *operands)


def _stacked(names: Sequence[str], scope: Regions) -> str:
    """Tensors of one shape, along a new first axis."""
    axis = scope.constant(ints([0]))
    return scope.add("Concat", *(scope.add("Unsqueeze", name, axis) for name in names), axis=0)
