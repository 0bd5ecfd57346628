"""The role of a backend that decides what becomes of a graph: its passes, and what they choose."""

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
    """An order of passes on graphs, some of them the backend's own.

    Every pass returns a graph of the same results. A policy keeps no state: equal graphs and
    settings lead to equal graphs, in whichever process.
    """

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the passes that a graph goes through (`passes.PASSES`, `own_passes`), in
        order."""
        ...

    @property
    def own_passes(self) -> Mapping[str, Pass]:
        """The passes on graphs that it adds to `passes.PASSES`, by name; one of the same name
        stands in the place of the other."""
        return {}

    @property
    def takes_open_sizes(self) -> bool:
        """True if a model's sizes may be open when it is compiled."""
        return True

    @property
    def precisions(self) -> Mapping[str, frozenset[str]]:
        """The types in which contractions may multiply, as `CompileOptions.precision` names them,
        and the features of a target that each takes."""
        return {"f32": frozenset()}

    def layers(self, graph: Graph, settings: Settings) -> Sequence[Layer]:
        """Return the convolutions of a graph for which its passes choose an algorithm, in order.
        Where it returns any, `passes` has the pass `algorithm.CHOICE`."""
        return ()

    def byte_factors(self, target: Target) -> DType | None:
        """Return the type of the first factor where its passes multiply bytes by i8: bytes, or what
        they are widened to. None where such products stay those of floats."""
        return None
