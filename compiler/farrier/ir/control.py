"""Control flow in a graph: nodes whose regions run under a condition, or again and again.

    results…          = If[then, otherwise](condition, captured…)
    results…, stacks… = Loop[body](trips?, condition?, carried…, scanned…, captured…)

    then, otherwise (captured…)                               → results…
    body (iteration, carried…, slices…, captured…)            → again?, carried…, parts…

Regions are closed: what they use of the graph around them is handed to them by position, as to a
function, so a pass runs on a region as it does on a graph. Names in a region are its own.

A Loop runs while `iteration`, i64 from 0 on, is below `trips` (None: no bound) and the condition
holds: `condition` before the first iteration (None: it does), afterwards what the body returned
first, where the attribute `conditional` says that it returns one. Values that are `carried` go from
iteration to iteration, their types unchanged; of each `scanned` value iteration i gets the slice i
of axis 0, and the parts that the iterations return become the slices of `stacks`. ONNX's Scan is a
Loop over what it scans. The attributes `carried` and `scanned` say how many inputs are which;
`extent`, where a condition decides how long stacks are, is the symbol of that.

Shapes may differ from branch to branch, and from iteration to iteration. Where those of an If's
branches do, its result has a symbol (`joined`); where what a Loop carries changes its shape, it has
a symbol in the body, and another as a result (`grown`).

A branch that cannot be compiled is one node: a run that gets there ends.

    results… = Fail(reason='why it cannot be compiled')
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from farrier.ir.dim import Dim, Extent, Symbol
from farrier.ir.graph import Graph, Node, Value, attributes

FAIL = "Fail"
# From such a node on the elements of a tensor are extents, those of the constant behind it.
BIND = "Bind"
REQUIRE = "Require"  # a check that the elements of a tensor are what the constant says


@dataclasses.dataclass(frozen=True, slots=True)
class If:
    """The parts of a node `If`, by what they are."""

    condition: Value
    captured: tuple[Value, ...]
    results: tuple[Value, ...]
    branches: tuple[Graph, Graph]  # then, otherwise

    @classmethod
    def of(cls, node: Node) -> If:
        condition, *captured = _present(node.inputs)
        then, otherwise = node.regions
        return cls(condition, tuple(captured), node.outputs, (then, otherwise))


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """The parts of a node `Loop`, by what they are; the names on the right are the body's."""

    trips: Value | None
    condition: Value | None
    carried: tuple[Value, ...]  # initial values
    scanned: tuple[Value, ...]
    captured: tuple[Value, ...]
    results: tuple[Value, ...]  # of what is carried
    stacks: tuple[Value, ...]
    body: Graph
    iteration: Value
    current: tuple[Value, ...]  # what is carried, at the start of an iteration
    slices: tuple[Value, ...]
    seen: tuple[Value, ...]  # what is captured
    again: Value | None
    next: tuple[Value, ...]  # what is carried, at the end
    parts: tuple[Value, ...]
    extent: str = ""  # the symbol of how often it ran, where no size says that

    @classmethod
    def of(cls, node: Node) -> Loop:
        trips, condition, *others = node.inputs
        given = _present(others)
        (body,) = node.regions
        carried, scanned = int(node.attr("carried", 0)), int(node.attr("scanned", 0))
        iteration, *inside = body.inputs
        again, *returned = body.outputs if node.attr("conditional") else (None, *body.outputs)
        both = carried + scanned
        return cls(
            trips,
            condition,
            given[:carried],
            given[carried:both],
            given[both:],
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
        )


_FORMS: dict[str, type[If] | type[Loop]] = {"If": If, "Loop": Loop}


def is_control(node: Node) -> bool:
    """Check whether the node runs its regions; a kernel (`Fused`) is what its region computes."""
    return node.op in _FORMS


def control_of(node: Node) -> If | Loop | None:
    """Return the parts of a node that runs its regions, and None for any other node."""
    form = _FORMS.get(node.op)
    return None if form is None else form.of(node)


@dataclasses.dataclass(frozen=True, slots=True)
class Joined:
    """An extent of an If's results, and what it is in either branch."""

    symbol: Dim
    then: Extent
    otherwise: Extent


@dataclasses.dataclass(frozen=True, slots=True)
class Grown:
    """An extent of what a Loop carries: in an iteration, before the first, after each, and when all
    are over."""

    symbol: Dim
    initial: Extent
    next: Extent
    result: Dim


def joined(node: If) -> tuple[Joined, ...]:
    """The extents of results in which the branches differ, each once. Raises ValueError where one
    is no symbol of its own."""
    found: dict[Dim, Joined] = {}
    sides = (branch.outputs for branch in node.branches)
    for result, *values in zip(node.results, *sides, strict=True):
        shapes = (result.type.shape, *(value.type.shape for value in values))
        for extent, then, otherwise in zip(*shapes, strict=True):
            if not extent == then == otherwise:
                one = Joined(_as_symbol(extent), then, otherwise)
                if found.setdefault(one.symbol, one) != one:
                    raise ValueError(f"{extent} stands for extents that differ")
    return tuple(found.values())


def grown(node: Loop) -> tuple[Grown, ...]:
    """The extents of what is carried that change, each once. Raises ValueError where one is no
    symbol of its own."""
    found: dict[Dim, Grown] = {}
    for values in zip(node.current, node.carried, node.next, node.results, strict=True):
        for extent, initial, after, result in zip(*(v.type.shape for v in values), strict=True):
            if not extent == initial == after == result:
                one = Grown(_as_symbol(extent), initial, after, _as_symbol(result))
                if found.setdefault(one.symbol, one) != one:
                    raise ValueError(f"{extent} stands for extents that differ")
    return tuple(found.values())


def symbol_of(extent: Extent) -> Symbol | None:
    """The symbol that an extent is; None for another."""
    match extent:
        case Dim(terms=(((Symbol() as symbol,), 1),)):
            return symbol
    return None


def _as_symbol(extent: Extent) -> Dim:
    if not isinstance(extent, Dim) or symbol_of(extent) is None:
        raise ValueError(f"{extent} is no symbol of its own")
    return extent


def make_if(node: If, origin: str) -> Node:
    """The node of these parts, names and regions included."""
    inputs = (node.condition, *node.captured)
    return Node("If", inputs, node.results, (), node.branches, origin)


def make_loop(node: Loop, origin: str) -> Node:
    """The node of these parts: the body's inputs and outputs are as the parts say."""
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
    """The node that ends a run, in the place of what would give these results."""
    return Node(FAIL, (), results, attributes(reason=reason), (), origin)


def failures(graph: Graph) -> tuple[Node, ...]:
    """The nodes of a graph, at any depth, that end a run."""
    return tuple(node for whole in graphs_in(graph) for node in whole.nodes if node.op == FAIL)


def map_regions(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """`graph` with `change` applied to the regions of its control flow; itself where that changes
    nothing."""
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
    """`graph` and the regions of its control flow, at any depth."""
    yield graph
    for node in graph.nodes:
        if is_control(node):
            for region in node.regions:
                yield from graphs_in(region)


def _present(values: tuple[Value | None, ...] | list[Value | None]) -> tuple[Value, ...]:
    return tuple(value for value in values if value is not None)
