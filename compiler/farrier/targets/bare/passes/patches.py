"""The pass `patches`, which computes the first layers of a model in patches if its values do not
fit the board's RAM otherwise.

Images are largest in the first layers (Lin et al., "MCUNetV2: Memory-Efficient Patch-based
Inference for Tiny Deep Learning", 2021). In patches, no image between the input and the last of
these layers is ever whole in memory; the lines at the edges of patches are computed twice.
"""

from __future__ import annotations

from typing import NamedTuple

from farrier.ir.graph import Graph, Node
from farrier.ir.types import DType
from farrier.ops import Kind, lookup, product_of
from farrier.ops.pad import adds_border
from farrier.passes.settings import Settings
from farrier.targets.bare.layers import layer_name
from farrier.targets.bare.passes.strips import Prefix, in_patches, prefixes, products

_LEAST_STACK = 256  # The bytes of stack that the smallest model takes.
_ROOM = 4 << 10  # The bytes of RAM left for the stack of a model in patches if it is not measured.


class _Choice(NamedTuple):
    """A choice of how to compute the first layers in patches: which layers (the prefix), and how
    many patches. `nbytes` is the RAM that the model then takes, and `more` the number of additional
    multiply-adds."""

    prefix: Prefix
    patches: int
    nbytes: int
    more: int


def patches(graph: Graph, settings: Settings) -> Graph:
    """Compute the first layers in patches if the model does not fit the board's RAM otherwise,
    together with its stack if that is measured (`Settings.stack_bytes`). A choice is a last layer
    and a number of patches. Of all choices that fit, the one with the fewest additional
    multiply-adds is taken; if none fits, the one with the least RAM. The memory of each choice is
    planned after all remaining passes.

    Before and after: see `in_patches`.
    """
    from farrier.targets.bare.backend import BareTarget

    target = settings.target
    if not isinstance(target, BareTarget) or not target.ram_bytes:
        return graph
    search = _Search(graph, settings, target.ram_bytes - (settings.stack_bytes or _ROOM))
    whole = search.arena(graph)
    if whole + (settings.stack_bytes or _LEAST_STACK) <= target.ram_bytes:
        return graph
    choice = search.best()
    if choice is None or choice.nbytes >= whole:
        return graph
    return in_patches(graph, choice.prefix, choice.patches, _note(graph, choice, whole))


class _Search:
    def __init__(self, graph: Graph, settings: Settings, most: int) -> None:
        self._graph = graph
        self._settings = settings
        self._most = most

    def best(self) -> _Choice | None:
        """Return the best choice. It is the one with the fewest additional multiply-adds among the
        choices with which the model fits; if it fits with none, it is the choice that takes the
        least RAM."""
        best: _Choice | None = None
        for prefix in prefixes(self._graph):
            if not _ends_kernel(prefix.nodes[-1], self._graph):
                continue
            choice = self._fewest(prefix, best)
            if choice and (best is None or self._rank(choice) < self._rank(best)):
                best = choice
        return best

    def arena(self, graph: Graph) -> int:
        """Return the bytes of RAM that a graph takes for its values. For that, all remaining passes
        run on it."""
        from farrier.partition import extract_tasks
        from farrier.passes.runner import run_passes
        from farrier.targets.bare.arena import arena_bytes
        from farrier.targets.bare.passes.passes import ORDER

        rest = ORDER[ORDER.index("patches") + 1 :]
        _, program = extract_tasks(run_passes(graph, rest, self._settings))
        return arena_bytes(program)

    def _rank(self, choice: _Choice) -> tuple[bool, int, int]:
        fits = choice.nbytes <= self._most
        order = (choice.more, choice.nbytes)
        return (not fits, *(order if fits else order[::-1]))

    def _fewest(self, prefix: Prefix, best: _Choice | None) -> _Choice | None:
        """Return the choice for a prefix with the fewest patches with which the model fits. If it
        fits with no number of patches, return the choice with the most patches. Return None if the
        result cannot be better than `best`."""
        counts = _counts(prefix.height)
        if not counts:
            return None
        is_settled = best is not None and best.nbytes <= self._most
        if best is not None and is_settled and self._more(prefix, counts[0]) > best.more:
            return None
        choice = self._choice(prefix, counts[-1])
        if choice.nbytes > self._most:
            return choice
        low, high = 0, len(counts) - 1
        while low < high:
            middle = (low + high) // 2
            fewer = self._choice(prefix, counts[middle])
            if fewer.nbytes <= self._most:
                choice, high = fewer, middle
            else:
                low = middle + 1
        return choice

    def _choice(self, prefix: Prefix, count: int) -> _Choice:
        nbytes = self.arena(in_patches(self._graph, prefix, count))
        return _Choice(prefix, count, nbytes, self._more(prefix, count))

    def _more(self, prefix: Prefix, count: int) -> int:
        """Return the number of multiply-adds that are done twice, because the patches overlap."""
        return count * prefix.products(prefix.lines(count)) - prefix.products()


def _counts(height: int) -> list[int]:
    """Return the numbers of patches to try, beginning with 2. Of several numbers for which patches
    have the same height, only the smallest is included."""
    return sorted({-(-height // lines) for lines in range(1, height)})


def _ends_kernel(node: Node, graph: Graph) -> bool:
    """Check whether the result of a node is stored in memory in its final form. That is not the
    case if the node is computed in one kernel with a reader, or if the result consists of sums that
    are wider than bytes."""
    (value,) = node.outputs
    readers = [other for other in graph.nodes if value in other.inputs]
    joins = len(readers) == 1 and lookup(readers[0].op).kind is Kind.ELEMENTWISE
    return not joins and not adds_border(node) and value.type.dtype is not DType.I32


def _note(graph: Graph, choice: _Choice, whole: int) -> str:
    """Return the sentence in which the user reads about the patches."""
    prefix, count = choice.prefix, choice.patches
    last = next(node for node in reversed(prefix.nodes) if product_of(node))
    layer = layer_name(last.origin) or last.outputs[0].name
    total = sum(map(products, graph.nodes)) or 1
    height, width = -(-prefix.height // count), prefix.last.type.shape[-1]
    return (
        f"the first layers, through {layer}, are computed in {count} patches of {height}×{width}: "
        f"{choice.nbytes:,} bytes of RAM instead of {whole:,}, and {choice.more / total:.1%} more "
        "multiply-adds"
    )
