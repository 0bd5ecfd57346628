"""The interface of derivations, each of which is a way to tile and schedule one loop nest."""

from __future__ import annotations

import abc
import dataclasses

import numpy as np
import numpy.typing as npt

from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.space import Columns, Decisions, Knob
from farrier.targets.cpu.sketch.nest import Nest
from farrier.targets.cpu.sketch.tiling import Tiling


@dataclasses.dataclass(frozen=True)
class Derivation(abc.ABC):
    """A parameterized way to schedule one loop nest.

    `machine` has the lane count for the nest's element type. Knobs are named `<derivation>.<knob>`,
    preceded by a `prefix` that names the rewrites of the program, because candidates of several
    sketches share a space.
    """

    nest: Nest
    machine: Machine
    prefix: str = ""

    @classmethod
    @abc.abstractmethod
    def rule(cls) -> RuleId:
        """Return the name and version of the derivation. The version increases when equal decisions
        produce different code."""

    @classmethod
    @abc.abstractmethod
    def applies(cls, nest: Nest) -> bool:
        """Check whether the derivation can schedule a nest of this structure."""

    @abc.abstractmethod
    def knobs(self) -> tuple[Knob, ...]:
        """Return the knobs of the space; at least one combination of their values is allowed."""

    @abc.abstractmethod
    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Return for each candidate whether it is legal and fits in the registers, [candidates]."""

    @abc.abstractmethod
    def tiling(self, columns: Columns) -> Tiling:
        """Return the tile that each candidate uses, for the cost estimate."""

    @abc.abstractmethod
    def schedule(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        """Schedule the nest by tiles. Return the names of the loops around a tile, outermost first.
        These loops are perfectly nested, and their iterations are independent of each other."""

    def knob(self, name: str, values: tuple[int, ...]) -> Knob:
        return Knob(self._named(name), values)

    def parallel_knob(self) -> Knob:
        several = self.machine.threads > 1 and bool(self.nest.long_axes)
        return self.knob("parallel", (0, 1) if several else (0,))

    def column(self, columns: Columns, name: str) -> npt.NDArray[np.int64]:
        return columns[self._named(name)]

    def decided(self, decisions: Decisions, name: str) -> int:
        return decisions[self._named(name)]

    def _named(self, name: str) -> str:
        return f"{self.prefix}{self.rule().name.rpartition('/')[2]}.{name}"
