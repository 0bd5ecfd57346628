"""Places every value of an optimized graph in memory: what is not alive together shares bytes."""

from __future__ import annotations

import bisect
import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence

from farrier.errors import CompilerError
from farrier.ir.dim import number
from farrier.ir.graph import Graph
from farrier.ir.printer import print_ir

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
_MOST_ATTEMPTS = 100
_PAIRS = 5_000_000  # of blocks to be compared, in all attempts


class Segment(enum.StrEnum):
    """Which argument of the model's entry a value lies in."""

    INPUT = "input"
    OUTPUT = "output"
    PARAMS = "params"
    WORKSPACE = "workspace"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies: `index` says which input, output or constant of the graph, `offset` is
    bytes into the workspace (0 elsewhere; the offsets of constants are the parameter arena's)."""

    segment: Segment
    index: int = 0
    offset: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`places` are by value name, `scratch` are workspace offsets of kernels by the name of their
    first output. No plan needs less than `lower_bound` bytes: that is what is alive at once."""

    places: Mapping[str, Place]
    scratch: Mapping[str, int]
    workspace_bytes: int
    lower_bound: int


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Bytes that must stay from step `first` to step `last`, both included."""

    name: str
    nbytes: int
    first: int
    last: int


def plan_memory(graph: Graph, scratch: Mapping[str, int] | None = None) -> MemoryPlan:
    """The plan for a graph of kernels and views. `scratch` gives the bytes of workspace that a
    kernel needs for itself while it runs, by the name of its first output.

    A view lies where its operand lies, and the parts of an Adjoin where it does. Raises
    CompilerError where that leaves a value two places; `fuse` sees to it that none has.
    """
    homes = _homes(graph)
    fixed = _fixed_places(graph, homes)
    blocks = _live_blocks(graph, homes, fixed, scratch or {})
    offsets, total = pack_blocks(blocks)
    places: dict[str, Place] = {}
    for value in graph.values():
        home = homes.get(value.name, _Home(value.name))
        place = fixed.get(home.name) or Place(Segment.WORKSPACE, 0, offsets[home.name])
        places[value.name] = dataclasses.replace(place, offset=place.offset + home.offset)
    own = {name: offsets[_scratch_name(name)] for name in scratch or {}}
    return MemoryPlan(places, own, total, alive_at_once(blocks))


@dataclasses.dataclass(frozen=True, slots=True)
class _Home:
    """The value in whose memory another lies, and how many bytes behind its start."""

    name: str
    offset: int = 0


def _homes(graph: Graph) -> dict[str, _Home]:
    """The home of every value that has no memory of its own."""
    direct: dict[str, _Home] = {}
    for node in graph.nodes:
        if node.op == "Adjoin":
            offset = 0
            for part in node.inputs:
                if part is None or part.name in direct:
                    raise CompilerError(f"a part of Adjoin lies elsewhere\n{print_ir(node)}")
                direct[part.name] = _Home(node.outputs[0].name, offset)
                offset += number(part.type.nbytes)
            if offset != node.outputs[0].type.nbytes:
                raise CompilerError(f"the parts of Adjoin do not fill it\n{print_ir(node)}")
        elif not node.regions and node.inputs and node.inputs[0] is not None:
            direct[node.outputs[0].name] = _Home(node.inputs[0].name)
    return {name: _outermost(home, direct) for name, home in direct.items()}


def _outermost(home: _Home, direct: Mapping[str, _Home]) -> _Home:
    while home.name in direct:
        outer = direct[home.name]
        home = _Home(outer.name, home.offset + outer.offset)
    return home


def _fixed_places(graph: Graph, homes: Mapping[str, _Home]) -> dict[str, Place]:
    """Places of what the caller owns, by the name of the value that holds the memory."""
    places = {value.name: Place(Segment.INPUT, i) for i, value in enumerate(graph.inputs)}
    for i, constant in enumerate(graph.constants):
        places[constant.value.name] = Place(Segment.PARAMS, i)
    for i, value in enumerate(graph.outputs):
        home = homes.get(value.name, _Home(value.name))
        if home.name in places or home.offset:
            raise CompilerError(
                f"output {value.name} has no memory of its own: it is {home.name}'s"
            )
        places[home.name] = Place(Segment.OUTPUT, i)
    return places


def _live_blocks(
    graph: Graph,
    homes: Mapping[str, _Home],
    fixed: Mapping[str, Place],
    scratch: Mapping[str, int],
) -> list[Block]:
    """What needs workspace, and when: a step is a node's position."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for step, node in enumerate(graph.nodes):
        for value in (*node.outputs, *node.inputs):
            if value is not None:
                home = homes.get(value.name, _Home(value.name)).name
                first.setdefault(home, step)
                last[home] = step
        for value in node.outputs:
            sizes[value.name] = number(value.type.nbytes)
    blocks = [
        Block(home, sizes[home], first[home], last[home]) for home in first if home not in fixed
    ]
    for step, node in enumerate(graph.nodes):
        own = node.outputs[0].name
        if own in scratch:
            blocks.append(Block(_scratch_name(own), scratch[own], step, step))
    return blocks


def _scratch_name(kernel: str) -> str:
    return f"{kernel}.scratch"  # no value has a dot in its name


def pack_blocks(blocks: Sequence[Block]) -> tuple[dict[str, int], int]:
    """Offsets that keep blocks alive at one step apart, and the bytes they take in all.

    Greedy by size, each into the smallest gap that holds it (Pisarchyk and Lee, "Efficient Memory
    Management for Deep Neural Net Inference", 2020, section 5.2). While that takes more than is
    alive at once, the blocks that end highest go first in the next attempt, and the best attempt
    counts (Joslin and Clements, "Squeaky Wheel Optimization", 1999).
    """
    order = sorted(blocks, key=lambda b: (-b.nbytes, b.first, b.name))
    least = alive_at_once(blocks)
    best, total = _placed_in(order)
    offsets, reach = best, total
    for _ in range(_attempts(len(blocks))):
        if total == least:
            break
        top = {b.name for b in order if offsets[b.name] + _aligned(b.nbytes) == reach}
        order.sort(key=lambda b: b.name not in top)
        offsets, reach = _placed_in(order)
        if reach < total:
            best, total = offsets, reach
    return best, total


def _attempts(blocks: int) -> int:
    """How many orders to try, within about a second."""
    return min(_MOST_ATTEMPTS, _PAIRS // max(blocks, 1) ** 2)


def _placed_in(order: Sequence[Block]) -> tuple[dict[str, int], int]:
    """Offsets by name, each block in turn into the smallest gap, and the bytes they take."""
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, Block]] = []  # offset, end, block; by offset
    total = 0
    for block in order:
        size = _aligned(block.nbytes)
        overlapping = (
            (start, end)
            for start, end, other in placed
            if other.first <= block.last and block.first <= other.last
        )
        offset = _best_gap(overlapping, size)
        offsets[block.name] = offset
        total = max(total, offset + size)
        bisect.insort(placed, (offset, offset + size, block), key=lambda item: item[0])
    return offsets, total


def _best_gap(taken: Iterable[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds `size`; `taken` are ranges sorted by start."""
    best: tuple[int, int] | None = None
    reach = 0
    for start, end in taken:
        gap = start - reach
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, reach)
        reach = max(reach, end)
    return best[1] if best is not None else reach


def alive_at_once(blocks: Sequence[Block]) -> int:
    """The most bytes that any step needs."""
    change: dict[int, int] = {}
    for block in blocks:
        size = _aligned(block.nbytes)
        change[block.first] = change.get(block.first, 0) + size
        change[block.last + 1] = change.get(block.last + 1, 0) - size
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
