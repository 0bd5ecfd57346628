"""Places every value of an optimized graph in memory: what is not alive together shares bytes."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence

from farrier.errors import CompilerError
from farrier.ir.graph import Graph, Node

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


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

    A view lies where its operand lies. Raises CompilerError where two outputs share memory: `fuse`
    gives each its own.
    """
    views = _views(graph)
    fixed = _fixed_places(graph, views)
    blocks = _live_blocks(graph, views, fixed, scratch or {})
    offsets, total = pack_blocks(blocks)
    places: dict[str, Place] = {}
    for value in graph.values():
        root = views.get(value.name, value.name)
        places[value.name] = fixed.get(root) or Place(Segment.WORKSPACE, 0, offsets[root])
    own = {name: offsets[_scratch_name(name)] for name in scratch or {}}
    return MemoryPlan(places, own, total, alive_at_once(blocks))


def _views(graph: Graph) -> dict[str, str]:
    """The value whose memory each view is, by the view's name."""
    roots: dict[str, str] = {}
    for node in graph.nodes:
        if not node.regions and node.inputs and node.inputs[0] is not None:
            source = node.inputs[0].name
            roots[node.outputs[0].name] = roots.get(source, source)
    return roots


def _fixed_places(graph: Graph, views: Mapping[str, str]) -> dict[str, Place]:
    """Places of what the caller owns, by the name of the value that holds the memory."""
    places = {value.name: Place(Segment.INPUT, i) for i, value in enumerate(graph.inputs)}
    for i, constant in enumerate(graph.constants):
        places[constant.value.name] = Place(Segment.PARAMS, i)
    for i, value in enumerate(graph.outputs):
        root = views.get(value.name, value.name)
        if root in places:
            raise CompilerError(f"output {value.name} has no memory of its own: it is {root}'s")
        places[root] = Place(Segment.OUTPUT, i)
    return places


def _live_blocks(
    graph: Graph,
    views: Mapping[str, str],
    fixed: Mapping[str, Place],
    scratch: Mapping[str, int],
) -> list[Block]:
    """What needs workspace, and when: a step is a node's position."""
    last = _last_reads(graph, views)
    blocks = []
    for step, node in enumerate(graph.nodes):
        for value in node.outputs:
            if value.name not in fixed and value.name not in views:
                end = last.get(value.name, step)
                blocks.append(Block(value.name, value.type.nbytes, step, end))
        own = node.outputs[0].name
        if own in scratch:
            blocks.append(Block(_scratch_name(own), scratch[own], step, step))
    return blocks


def _last_reads(graph: Graph, views: Mapping[str, str]) -> dict[str, int]:
    last: dict[str, int] = {}
    for step, node in enumerate(graph.nodes):
        for name in _reads(node):
            last[views.get(name, name)] = step
    return last


def _reads(node: Node) -> list[str]:
    return [value.name for value in node.inputs if value is not None]


def _scratch_name(kernel: str) -> str:
    return f"{kernel}.scratch"  # no value has a dot in its name


def pack_blocks(blocks: Sequence[Block]) -> tuple[dict[str, int], int]:
    """Offsets that keep blocks alive at one step apart, and the bytes they take in all.

    Greedy by size, each into the smallest gap that holds it (Pisarchyk and Lee, "Efficient Memory
    Management for Deep Neural Net Inference", 2020, section 5.2).
    """
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, Block]] = []  # offset, end, block; by offset
    total = 0
    for block in sorted(blocks, key=lambda b: (-b.nbytes, b.first, b.name)):
        size = _aligned(block.nbytes)
        overlapping = (
            (start, end)
            for start, end, other in placed
            if other.first <= block.last and block.first <= other.last
        )
        offset = _best_gap(overlapping, size)
        offsets[block.name] = offset
        total = max(total, offset + size)
        placed.append((offset, offset + size, block))
        placed.sort(key=lambda item: item[0])
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
