"""Derive the sketches that the structure of a program permits.

A sketch is the program after its rewrites (inline, fuse the consumer, split over threads), and one
derivation for the nest with most work, whose knobs are the sketch's. All other nests run as the
estimate ranks first: their seconds add up, so each is decided by itself.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import Undecided
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.schedule.errors import ScheduleError
from farrier.space.machine import Machine
from farrier.space.rewrites import without_halos
from farrier.space.sketch.derivation import Derivation
from farrier.space.sketch.estimate import NestCost
from farrier.space.sketch.fuse_consumer import fuse_consumers
from farrier.space.sketch.inline import inline
from farrier.space.sketch.lanes import Lanes
from farrier.space.sketch.nest import Nest
from farrier.space.sketch.split_lanes import SplitLanes
from farrier.space.sketch.split_threads import split_threads
from farrier.space.sketch.tile_registers import TileRegisters
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space

DERIVATIONS: tuple[type[Derivation], ...] = (TileRegisters, SplitLanes, Lanes)
_IN_PARTS = RuleId("sketch/split-threads", version=1)
SERIAL = RuleId("sketch/serial", version=1)

Share = Callable[[Schedule, Sequence[str]], None]


def _in_parts(rule: RuleId) -> RuleId:
    """Return the rule of a sketch whose reduction is split over threads first. It has a version of
    its own whenever either derivation gets another."""
    return RuleId(
        f"{_IN_PARTS.name}+{rule.name.rpartition('/')[2]}", _IN_PARTS.version * 1000 + rule.version
    )


RULES = frozenset(
    rule for each in DERIVATIONS for rule in (each.rule(), _in_parts(each.rule()))
) | {SERIAL}


def sketches(program: TensorProgram, machine: Machine, share: Share) -> list[Space]:
    """Return the space of each sketch of a program, the one first that the estimate ranks first.

    `share` runs loops that stand directly within one another, and whose iterations are independent,
    on the threads of the target.
    """
    rewritten = inline(without_halos(program))
    forms = [(rewritten, *fuse_consumers(rewritten))]
    main = _heaviest(forms[0][2])
    if main is not None:
        parts = split_threads(forms[0][1], main, machine)
        if parts is not None:
            forms.append((parts, *fuse_consumers(parts)))
    spaces = []
    for number, (_, prepared, nests) in enumerate(forms):
        spaces += _spaces(prepared, nests, machine, share, in_parts=number > 0)
    ranked = sorted(spaces, key=lambda space: space.seconds(space.default()))
    reasons: list[str] = []
    while ranked and not _applies(ranked[0], reasons):
        ranked.pop(0)
    if ranked:
        return ranked
    serial = _serial(forms[0][1], forms[0][2], machine)
    serial.slow_reason = f"no sketch applies to it: {reasons[0]}" if reasons else None
    return [serial]


def _applies(space: Space, reasons: list[str]) -> bool:
    """Check that the default of a space can be scheduled, which open extents may not permit; adds
    the reason to `reasons` where it cannot."""
    try:
        space.try_default()
    except (ScheduleError, Undecided) as error:
        (reason, *_) = str(error).splitlines()
        reasons.append(reason)
        return False
    return True


def _heaviest(nests: Sequence[Nest]) -> Nest | None:
    """Return the nest with most work among those with more than one point or summand."""
    several = [nest for nest in nests if _derivations(nest)]
    return max(several, key=lambda nest: nest.work, default=None)


def _derivations(nest: Nest) -> list[type[Derivation]]:
    return [] if nest.is_empty else [each for each in DERIVATIONS if each.applies(nest)]


def _spaces(
    program: TensorProgram, nests: Sequence[Nest], machine: Machine, share: Share, *, in_parts: bool
) -> list[Space]:
    main = _heaviest(nests)
    if main is None:
        return []
    others = [_Choice.best(nest, machine) for nest in nests if nest is not main]
    rest = [choice for choice in others if choice is not None]
    spaces = []
    for each in _derivations(main):
        prefix = "threads." if in_parts else ""
        derivation = each(main, machine.for_elements(main.widest), prefix)
        sketch = Sketch(program, derivation, rest, share)
        rule = _in_parts(each.rule()) if in_parts else each.rule()
        spaces.append(Space.of(rule, sketch))
    return spaces


@dataclasses.dataclass(frozen=True)
class _Choice:
    """The decisions for a nest that has no knobs in the space."""

    derivation: Derivation
    decisions: dict[str, int]
    seconds: float

    @classmethod
    def best(cls, nest: Nest, machine: Machine) -> _Choice | None:
        """Return the candidate that the estimate ranks first of all derivations; None for a nest
        that none applies to."""
        choices = []
        for each in _derivations(nest):
            derivation = each(nest, machine.for_elements(nest.widest))
            alone = Sketch(None, derivation, (), lambda schedule, loops: None)
            space = Space.of(each.rule(), alone)
            decisions = space.default()
            choices.append(cls(derivation, decisions, space.seconds(decisions)))
        return min(choices, key=lambda choice: choice.seconds, default=None)


@dataclasses.dataclass(frozen=True)
class Sketch:
    """The kernel of one sketch: a derivation of its heaviest nest, decisions for the others."""

    program: TensorProgram | None
    main: Derivation
    rest: Sequence[_Choice]
    share: Share

    @functools.cached_property
    def function(self) -> Function:
        assert self.program is not None
        return to_loops(self.program)

    def knobs(self) -> tuple[Knob, ...]:
        return self.main.knobs()

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return self.main.allowed(columns)

    def estimate(self, columns: Columns) -> Estimate:
        cost = NestCost(self.main.nest, self.main.machine).seconds(self.main.tiling(columns))
        others = sum(choice.seconds for choice in self.rest)
        return dataclasses.replace(cost, seconds=cost.seconds + others)

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(self.function)
        for derivation, chosen in self._all(decisions):
            around = derivation.schedule(schedule, chosen)
            if around and derivation.decided(chosen, "parallel"):
                self.share(schedule, around)
        return schedule

    def _all(self, decisions: Decisions) -> list[tuple[Derivation, Decisions]]:
        others = [(choice.derivation, choice.decisions) for choice in self.rest]
        return [(self.main, decisions), *others]


def _serial(program: TensorProgram, nests: Sequence[Nest], machine: Machine) -> Space:
    """Return the space of a program whose every nest is a single point or none: there is nothing to
    put on lanes or threads."""
    work = max(sum(nest.work for nest in nests), 1.0)

    def estimate(columns: Columns) -> Estimate:
        seconds = np.full(len(columns["serial"]), work / machine.hertz)
        return Estimate(seconds, {"overhead": seconds})

    return Space(
        SERIAL,
        (Knob("serial", (1,)),),
        lambda columns: columns["serial"] == 1,
        estimate,
        lambda decisions: Schedule(to_loops(program)),
    )
