"""The role of a backend that selects the graph passes, and the decisions that these passes make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from farrier.ir.graph import Graph
    from farrier.ir.types import DType
    from farrier.passes import Settings
    from farrier.passes.algorithm import Layer
    from farrier.passes.passes import Pass
    from farrier.targets.target import Target


class GraphPolicy(Protocol):
    """The order of the graph passes for a backend's targets, which may include passes of its own.

    Every pass preserves the results of the graph. A policy is stateless: equal graphs and settings
    produce equal graphs in every process.
    """

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the graph passes to run, in order. A name refers to `passes.PASSES` or
        `own_passes`."""
        ...

    @property
    def own_passes(self) -> Mapping[str, Pass]:
        """The backend's own graph passes by name, in addition to `passes.PASSES`. A pass with a
        name that `passes.PASSES` also has replaces that pass."""
        return {}

    @property
    def takes_open_sizes(self) -> bool:
        """True if the backend compiles models whose sizes are still unknown at compile time."""
        return True

    @property
    def precisions(self) -> Mapping[str, frozenset[str]]:
        """The precisions in which contractions may multiply, as named by
        `CompileOptions.precision`, and the target features that each precision requires."""
        return {"f32": frozenset()}

    def layers(self, graph: Graph, settings: Settings) -> Sequence[Layer]:
        """Return the convolutions of a graph for which several algorithms are possible (direct or
        Winograd), in the order of the graph. A backend that returns any must include the pass named
        by `algorithm.CHOICE`, which selects the algorithms, in `passes`."""
        return ()

    def byte_factors(self, target: Target) -> DType | None:
        """Return the dtype in which integer products read a first factor of bytes (u8 or i8) when
        the second factor is i8. It is a byte type, or i16 if the graph passes widen the factor for
        the target's instructions. None if the passes compute such products in floating point."""
        return None
