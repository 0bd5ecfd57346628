"""The derivation of all sketches that the structure of a program permits.

A sketch combines a rewrite of the program (inlining, fusing sums with their readers, splitting by
phases, staging an operand, splitting over threads) with one derivation for the nest with the most
work, whose knobs are the knobs of the sketch. Every other nest is scheduled independently by its
best candidate in the cost estimate, because the times of nests add up.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import Undecided, typical
from farrier.ir.loop import Function
from farrier.ir.tensor import Stage, TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.schedule.errors import ScheduleError
from farrier.space.inline import inline
from farrier.space.machine import Machine
from farrier.space.rewrites import without_halos
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets.cpu.sketch.derivation import Derivation
from farrier.targets.cpu.sketch.estimate import NestCost
from farrier.targets.cpu.sketch.fuse_consumer import fuse_consumers
from farrier.targets.cpu.sketch.lanes import Lanes
from farrier.targets.cpu.sketch.nest import Nest
from farrier.targets.cpu.sketch.phases import phases
from farrier.targets.cpu.sketch.split_lanes import SplitLanes
from farrier.targets.cpu.sketch.split_threads import split_threads
from farrier.targets.cpu.sketch.stage_operand import stage_operands
from farrier.targets.cpu.sketch.tile_registers import TileRegisters

DERIVATIONS: tuple[type[Derivation], ...] = (TileRegisters, SplitLanes, Lanes)
SERIAL = RuleId("sketch/serial", version=1)

Share = Callable[[Schedule, Sequence[str]], None]


@dataclasses.dataclass(frozen=True)
class _Rewrite:
    """A rewrite of the whole program. `rule` and `prefix` begin the names of the rules and the
    knobs of its sketches."""

    rule: RuleId
    prefix: str


_PHASES = _Rewrite(RuleId("sketch/phases", version=1), "phases.")
_CHAINS = _Rewrite(RuleId("sketch/fuse-sums", version=1), "sums.")
_STAGED = _Rewrite(RuleId("sketch/stage-operands", version=1), "staged.")
_IN_PARTS = _Rewrite(RuleId("sketch/split-threads", version=2), "threads.")
_REWRITES: tuple[tuple[_Rewrite, ...], ...] = (
    (),
    (_CHAINS,),
    (_IN_PARTS,),
    (_STAGED,),
    (_PHASES,),
    (_PHASES, _IN_PARTS),
    (_PHASES, _STAGED),
)


def _after(rewrites: Sequence[_Rewrite], rule: RuleId) -> RuleId:
    """Return the rule of a sketch that applies `rewrites` and then the derivation `rule`. Its
    version changes whenever that of a rewrite or of the derivation does."""
    for rewrite in reversed(rewrites):
        first = rewrite.rule
        name = f"{first.name}+{rule.name.rpartition('/')[2]}"
        rule = RuleId(name, first.version * 1000 + rule.version)
    return rule


def _derivations_after(rewrites: tuple[_Rewrite, ...]) -> tuple[type[Derivation], ...]:
    """Return the derivations to try after `rewrites`. After staging operands, only register tiles
    profit from the copies."""
    return (TileRegisters,) if _STAGED in rewrites else DERIVATIONS


RULES = frozenset(
    _after(rewrites, each.rule()) for rewrites in _REWRITES for each in _derivations_after(rewrites)
) | {SERIAL}


@dataclasses.dataclass(frozen=True)
class _Form:
    """A program after some rewrites, with its loop nests."""

    rewrites: tuple[_Rewrite, ...]
    program: TensorProgram
    nests: tuple[Nest, ...]

    @classmethod
    def of(cls, rewrites: tuple[_Rewrite, ...], program: TensorProgram) -> _Form:
        return cls(rewrites, *fuse_consumers(program, chains=_CHAINS in rewrites))

    @property
    def prefix(self) -> str:
        return "".join(rewrite.prefix for rewrite in self.rewrites)


def sketches(program: TensorProgram, machine: Machine, share: Share) -> list[Space]:
    """Return the space of each sketch of a program, in the order of the estimated time of their
    defaults.

    `share` is a function that runs the given loops, which are perfectly nested and have independent
    iterations, on the threads of the target.
    """
    forms = _forms(inline(without_halos(program)), machine)
    choices = _Choices(machine)
    spaces = [space for form in forms for space in _spaces(form, choices, share)]
    ranked = sorted(spaces, key=lambda space: space.seconds(space.default()))
    reasons: list[str] = []
    while ranked and not _applies(ranked[0], reasons):
        ranked.pop(0)
    if ranked:
        return ranked
    serial = _serial(forms[0], machine)
    serial.slow_reason = f"no sketch applies to it: {reasons[0]}" if reasons else None
    return [serial]


def _forms(program: TensorProgram, machine: Machine) -> list[_Form]:
    """Return the rewritten forms that the structure of a program permits, first the program without
    rewrites."""
    plain = _Form.of((), program)
    forms = [plain]
    if _heaviest(plain.nests) is None:
        return forms
    # If a cache keeps a row from one sum to the next, a common tile has no advantage.
    if sum(typical(buffer.nbytes) for buffer in program.inputs) > machine.l2_bytes:
        chained = _Form.of((_CHAINS,), program)
        if len(chained.nests) < len(plain.nests):
            forms.append(chained)
    phased = phases(program)
    apart = [] if phased is None else [_Form.of((_PHASES,), inline(phased))]
    # Splitting into phases is always best, so other rewrites start from it.
    for form in apart or (plain,):
        parts = split_threads(form.program, form.nests, machine)
        if parts is not None:
            forms.append(_Form.of((*form.rewrites, _IN_PARTS), parts))
        staged = stage_operands(form.program)
        if staged is not None:
            forms.append(_Form.of((*form.rewrites, _STAGED), staged))
    return forms + apart


def _applies(space: Space, reasons: list[str]) -> bool:
    """Check whether the default candidate of a space can be scheduled, which may fail for open
    (dynamic) extents. If it fails, append the reason to `reasons`."""
    try:
        space.try_default()
    except (ScheduleError, Undecided) as error:
        (reason, *_) = str(error).splitlines()
        reasons.append(reason)
        return False
    return True


def _heaviest(nests: Sequence[Nest]) -> Nest | None:
    """Return the nest with the most work, among those with more than one iteration; None if there
    is none."""
    several = [nest for nest in nests if _derivations(nest)]
    return max(several, key=lambda nest: nest.work, default=None)


def _derivations(nest: Nest) -> list[type[Derivation]]:
    return [] if nest.is_empty else [each for each in DERIVATIONS if each.applies(nest)]


def _spaces(form: _Form, choices: _Choices, share: Share) -> list[Space]:
    main = _heaviest(form.nests)
    if main is None:
        return []
    others = [choices.best(nest) for nest in form.nests if nest is not main]
    rest = [choice for choice in others if choice is not None]
    spaces = []
    for each in _derivations_after(form.rewrites):
        if not each.applies(main):
            continue
        derivation = each(main, choices.machine.for_elements(main.widest), form.prefix)
        sketch = Sketch(form.program, derivation, rest, share)
        spaces.append(Space.of(_after(form.rewrites, each.rule()), sketch))
    return spaces


@dataclasses.dataclass(frozen=True)
class _Choice:
    """A derivation and its decisions for one nest. They are not searched: they are the candidate
    with the smallest estimated time."""

    derivation: Derivation
    decisions: dict[str, int]
    seconds: float

    @classmethod
    def best(cls, nest: Nest, machine: Machine) -> _Choice | None:
        """Return the candidate with the smallest estimated time over all derivations that apply to
        a nest; None if none applies."""
        choices = []
        for each in _derivations(nest):
            derivation = each(nest, machine.for_elements(nest.widest))
            alone = Sketch(None, derivation, (), lambda schedule, loops: None)
            space = Space.of(each.rule(), alone)
            decisions = space.default()
            choices.append(cls(derivation, decisions, space.seconds(decisions)))
        return min(choices, key=lambda choice: choice.seconds, default=None)


class _Choices:
    """A cache of the best choices for nests, as the forms of a program have many nests in
    common."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._known: dict[tuple[Stage, ...], _Choice | None] = {}

    def best(self, nest: Nest) -> _Choice | None:
        key = (nest.stage, *nest.sums)
        if key not in self._known:
            self._known[key] = _Choice.best(nest, self.machine)
        return self._known[key]


@dataclasses.dataclass(frozen=True)
class Sketch:
    """The kernel of one sketch: a derivation with knobs for the heaviest nest, and fixed choices
    for the other nests."""

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


def _serial(form: _Form, machine: Machine) -> Space:
    """Return a space with a single, unscheduled candidate, for a program in which no nest has more
    than one iteration."""
    work = max(sum(nest.work for nest in form.nests), 1.0)

    def estimate(columns: Columns) -> Estimate:
        seconds = np.full(len(columns["serial"]), work / machine.hertz)
        return Estimate(seconds, {"overhead": seconds})

    return Space(
        SERIAL,
        (Knob("serial", (1,)),),
        lambda columns: columns["serial"] == 1,
        estimate,
        lambda decisions: Schedule(to_loops(form.program)),
    )
