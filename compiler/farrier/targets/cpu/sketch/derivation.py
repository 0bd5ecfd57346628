"""The interface of derivations: what each makes of one nest."""

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
    """The ways in which one derivation runs one nest.

    `machine` has the lanes of the nest's elements. Knobs are named `<derivation>.<knob>`, after a
    `prefix` that names rewrites of the program, because candidates of several sketches stand in one
    space.
    """

    nest: Nest
    machine: Machine
    prefix: str = ""

    @classmethod
    @abc.abstractmethod
    def rule(cls) -> RuleId:
        """Return the name of the derivation and its version, which rises when equal decisions no
        longer make equal code."""

    @classmethod
    @abc.abstractmethod
    def applies(cls, nest: Nest) -> bool:
        """Check whether the structure of a nest permits the derivation."""

    @abc.abstractmethod
    def knobs(self) -> tuple[Knob, ...]:
        """Return the decisions, at least one of whose combinations is allowed."""

    @abc.abstractmethod
    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Return which candidates are legal and fit the registers, [candidates]."""

    @abc.abstractmethod
    def tiling(self, columns: Columns) -> Tiling:
        """Return the tile of each candidate, for the estimate."""

    @abc.abstractmethod
    def schedule(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        """Schedule the nest, and return the loops around its tiles, outermost first, which stand
        directly within one another and whose iterations are independent."""

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
