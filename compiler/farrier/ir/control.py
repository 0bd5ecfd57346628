"""Control flow in a graph: nodes whose regions run under a condition, or repeatedly.

    results…          = If[then, otherwise](condition, captured…)
    results…, stacks… = Loop[body](trips?, condition?, carried…, scanned…, captured…)

    then, otherwise (captured…)                               → results…
    body (iteration, carried…, slices…, captured…)            → again?, carried…, parts…

Regions are closed: values of the surrounding graph are passed to them by position, as to a
function, so a pass runs on a region as it does on a graph. Names in a region are local to it.

A Loop runs while `iteration`, an i64 that counts from 0, is below `trips` (None: no bound) and the
condition holds: `condition` before the first iteration (None: true), afterwards the first result of
the body, if the attribute `conditional` is set. `carried` values pass from iteration to iteration
with unchanged types. Iteration i reads slice i of axis 0 of each `scanned` value, and the parts
that the iterations return become the slices of `stacks`. ONNX's Scan is a Loop over scanned values.
The attributes `carried` and `scanned` are the numbers of such inputs; `extent` names the symbol of
the length of the stacks if a condition decides that length, and `note` is a sentence for the user
about a loop that a pass inserted.

Shapes may differ between branches and between iterations. If the branches of an If return different
extents, the result's extent is a symbol (`joined`). If a Loop changes the shape of a carried value,
its extent is one symbol in the body and another in the result (`grown`).

A branch that cannot be compiled is replaced by one node, which aborts a run that reaches it.

    results… = Fail(reason='why it cannot be compiled')
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from farrier.ir.dim import Dim, Extent, Symbol
from farrier.ir.graph import Graph, Node, Value, attributes

FAIL = "Fail"
# From such a node on, the elements of its tensor equal the extents in the constant input.
BIND = "Bind"
REQUIRE = "Require"  # A check that the elements of a tensor equal those of the constant.


@dataclasses.dataclass(frozen=True, slots=True)
class If:
    """The inputs, outputs and branches of an `If` node, by their roles."""

    condition: Value
    captured: tuple[Value, ...]
    results: tuple[Value, ...]
    branches: tuple[Graph, Graph]  # The branches `then` and `otherwise`.

    @classmethod
    def of(cls, node: Node) -> If:
        condition, *captured = _present(node.inputs)
        then, otherwise = node.regions
        return cls(condition, tuple(captured), node.outputs, (then, otherwise))


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """The inputs, outputs and body of a `Loop` node, by their roles. The fields from `iteration` to
    `parts` are inputs and outputs of `body`."""

    trips: Value | None
    condition: Value | None
    carried: tuple[Value, ...]  # The initial values.
    scanned: tuple[Value, ...]
    captured: tuple[Value, ...]
    results: tuple[Value, ...]  # The carried values after the last iteration.
    stacks: tuple[Value, ...]
    body: Graph
    iteration: Value
    current: tuple[Value, ...]  # The carried values at the start of an iteration.
    slices: tuple[Value, ...]
    seen: tuple[Value, ...]  # The captured values, as the body names them.
    again: Value | None
    next: tuple[Value, ...]  # The carried values at the end of an iteration.
    parts: tuple[Value, ...]
    extent: str = ""  # Names the symbol of the trip count if no size determines it.
    note: str = ""

    @classmethod
    def of(cls, node: Node) -> Loop:
        trips, condition, *others = node.inputs
        present = _present(others)
        (body,) = node.regions
        carried, scanned = int(node.attr("carried", 0)), int(node.attr("scanned", 0))
        iteration, *inside = body.inputs
        again, *returned = body.outputs if node.attr("conditional") else (None, *body.outputs)
        both = carried + scanned
        return cls(
            trips,
            condition,
            present[:carried],
            present[carried:both],
            present[both:],
            node.outputs[:carried],
            node.outputs[carried:],
            body,
            iteration,
            tuple(inside[:carried]),
            tuple(inside[carried:both]),
            tuple(inside[both:]),
            again,
            tuple(value for value in returned[:carried] if value is not None),
            tuple(value for value in returned[carried:] if value is not None),
            str(node.attr("extent", "")),
            str(node.attr("note", "")),
        )


_FORMS: dict[str, type[If] | type[Loop]] = {"If": If, "Loop": Loop}


def is_control(node: Node) -> bool:
    """Check whether the node is an If or a Loop, whose regions run as control flow. The region of a
    kernel (`Fused`) does not run: it defines the kernel."""
    return node.op in _FORMS


def control_of(node: Node) -> If | Loop | None:
    """Return the If or Loop that describes a control-flow node, and None for any other node."""
    form = _FORMS.get(node.op)
    return None if form is None else form.of(node)


@dataclasses.dataclass(frozen=True, slots=True)
class Joined:
    """An extent in the results of an If that differs between the branches: its symbol in the
    result, and its value in each branch."""

    symbol: Dim
    then: Extent
    otherwise: Extent


@dataclasses.dataclass(frozen=True, slots=True)
class Grown:
    """An extent of a carried value that an iteration changes: its symbol within an iteration, its
    value before the first iteration, its value after an iteration, and its symbol in the result."""

    symbol: Dim
    initial: Extent
    next: Extent
    result: Dim


def joined(node: If) -> tuple[Joined, ...]:
    """Return the extents in the results of an If that differ between its branches, without
    duplicates. In the result, each such extent must be a symbol, and equal symbols must stand for
    equal pairs of extents; otherwise raise ValueError."""
    extents: dict[Dim, Joined] = {}
    sides = (branch.outputs for branch in node.branches)
    for result, *values in zip(node.results, *sides, strict=True):
        shapes = (result.type.shape, *(value.type.shape for value in values))
        for extent, then, otherwise in zip(*shapes, strict=True):
            if not extent == then == otherwise:
                record = Joined(_as_symbol(extent), then, otherwise)
                if extents.setdefault(record.symbol, record) != record:
                    raise ValueError(f"{extent} stands for extents that differ")
    return tuple(extents.values())


def grown(node: Loop) -> tuple[Grown, ...]:
    """Return the extents of carried values that change between iterations, without duplicates.
    Within the body and in the result, each such extent must be a symbol, and equal symbols must
    stand for extents that change equally; otherwise raise ValueError."""
    extents: dict[Dim, Grown] = {}
    for values in zip(node.current, node.carried, node.next, node.results, strict=True):
        for extent, initial, after, result in zip(*(v.type.shape for v in values), strict=True):
            if not extent == initial == after == result:
                record = Grown(_as_symbol(extent), initial, after, _as_symbol(result))
                if extents.setdefault(record.symbol, record) != record:
                    raise ValueError(f"{extent} stands for extents that differ")
    return tuple(extents.values())


def symbol_of(extent: Extent) -> Symbol | None:
    """Return the symbol if the extent consists of a single symbol, else None."""
    match extent:
        case Dim(terms=(((Symbol() as symbol,), 1),)):
            return symbol
    return None


def _as_symbol(extent: Extent) -> Dim:
    if not isinstance(extent, Dim) or symbol_of(extent) is None:
        raise ValueError(f"{extent} is no symbol of its own")
    return extent


def make_if(node: If, origin: str) -> Node:
    """Convert the description `node` of an If (see `If`) back to a graph node, with `origin` as the
    node's origin. This is the inverse of `control_of`."""
    inputs = (node.condition, *node.captured)
    return Node("If", inputs, node.results, (), node.branches, origin)


def make_loop(node: Loop, origin: str) -> Node:
    """Convert the description `node` of a Loop (see `Loop`) back to a graph node, with `origin` as
    the node's origin. This is the inverse of `control_of`. The inputs and outputs of the body are
    replaced by those in the description."""
    again = () if node.again is None else (node.again,)
    body = dataclasses.replace(
        node.body,
        inputs=(node.iteration, *node.current, *node.slices, *node.seen),
        outputs=(*again, *node.next, *node.parts),
    )
    attrs = attributes(
        carried=len(node.carried),
        scanned=len(node.scanned),
        conditional=node.again is not None,
        **({"extent": node.extent} if node.extent else {}),
        **({"note": node.note} if node.note else {}),
    )
    return Node(
        "Loop",
        (node.trips, node.condition, *node.carried, *node.scanned, *node.captured),
        (*node.results, *node.stacks),
        attrs,
        (body,),
        origin,
    )


def make_failure(results: tuple[Value, ...], reason: str, origin: str) -> Node:
    """Return a node that aborts the run with `reason`, to replace the nodes that would compute
    `results`."""
    return Node(FAIL, (), results, attributes(reason=reason), (), origin)


def failures(graph: Graph) -> tuple[Node, ...]:
    """Return the Fail nodes of a graph, those in nested regions included."""
    return tuple(node for whole in graphs_in(graph) for node in whole.nodes if node.op == FAIL)


def map_regions(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Return `graph` with `change` applied to each region of its control flow; `graph` itself if
    `change` changes none of them."""
    nodes = []
    for node in graph.nodes:
        if is_control(node):
            regions = tuple(map(change, node.regions))
            if any(new is not old for new, old in zip(regions, node.regions, strict=True)):
                node = dataclasses.replace(node, regions=regions)
        nodes.append(node)
    if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
        return graph
    return dataclasses.replace(graph, nodes=tuple(nodes))


def graphs_in(graph: Graph) -> Iterator[Graph]:
    """Yield `graph` and all regions of its control flow, nested ones included."""
    yield graph
    for node in graph.nodes:
        if is_control(node):
            for region in node.regions:
                yield from graphs_in(region)


def _present(values: tuple[Value | None, ...] | list[Value | None]) -> tuple[Value, ...]:
    return tuple(value for value in values if value is not None)
