"""Join the schedules of one task by several rules to one space, so that a search measures
candidates of all rules.

A candidate belongs to exactly one rule. Its decisions are values for the knobs of that rule; in a
row, the knobs of all other rules have the value `ABSENT`. Different rules must therefore not have
knobs of the same name.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from farrier.errors import CompilerError
from farrier.records import Context, RuleId
from farrier.space.features import Features
from farrier.space.space import (
    WHOLE,
    Columns,
    Decisions,
    Estimate,
    Floats,
    Knob,
    Population,
    Space,
)

if TYPE_CHECKING:
    from farrier.schedule import Schedule

ABSENT = int(np.iinfo(np.int64).min)  # This is the value of a knob of another rule.


class JoinedSpace(Space):
    """The union of the candidates of `spaces`. The default candidate is that of the first space.

    Estimates of different rules are not comparable, so they are scaled: before measurements, the
    default candidate of every rule counts as fast as that of the space `built_in`.

    `later` is a function that returns further spaces, which belong to rules in `later_rules`. It is
    called only when a search asks for candidates, so that a compilation with the default schedule
    does not wait for it. Their candidates never become faster by scaling.
    """

    def __init__(
        self,
        spaces: Sequence[Space],
        built_in: Space,
        later: Callable[[], Sequence[Space]] = tuple,
        later_rules: Collection[RuleId] = (),
    ) -> None:
        super().__init__(
            spaces[0].rule, self._joined_knobs, self._meets, self._estimated, self.schedule
        )
        self._first, self._later = tuple(spaces), later
        self._later_rules = tuple(sorted(later_rules, key=str))
        self._known = built_in
        self.program, self.describe = built_in.program, lambda: built_in.about
        self.passed_over, self.slow_reason = built_in.passed_over, built_in.slow_reason

    @functools.cached_property
    def spaces(self) -> tuple[Space, ...]:
        """The joined spaces, including the later ones, which are derived now if necessary."""
        return (*self._first, *self._later())

    @property
    def rules(self) -> tuple[RuleId, ...]:
        return (*(space.rule for space in self._first), *self._later_rules)

    def _joined_knobs(self) -> tuple[Knob, ...]:
        return tuple(
            Knob(knob.name, (*knob.values, ABSENT), knob.parts)
            for space in self.spaces
            for knob in space.knobs
        )

    @functools.cached_property
    def _places(self) -> list[slice]:
        """The slice of a row that holds the knobs of each space."""
        ends = np.cumsum([0, *(len(space.knobs) for space in self.spaces)])
        return [slice(*pair) for pair in itertools.pairwise(ends)]

    def _in_turn(self) -> Iterator[Space]:
        """Yield the spaces one by one; later ones are derived only if the caller asks for more."""
        yield from self._first
        yield from self.spaces[len(self._first) :]

    def rule_of(self, decisions: Decisions) -> RuleId:
        return self._of(decisions).rule

    @property
    def built_in(self) -> Space:
        return self._known

    def is_learned(self, population: Population) -> npt.NDArray[np.bool_]:
        is_alone = self._first == (self._known,)
        first, *_ = self._parts(population)
        return first[2] if is_alone else np.zeros(len(population), bool)

    @property
    def size(self) -> int:
        return sum(space.size for space in self.spaces)

    @property
    def derived_size(self) -> int:
        derived = self.spaces if "spaces" in vars(self) else self._first
        return sum(space.size for space in derived)

    @property
    def is_whole(self) -> bool:
        return all(space.is_whole for space in self.spaces)

    @functools.cached_property
    def bound(self) -> float:
        return min(space.bound for space in self.spaces)

    def candidates(self, limit: int = WHOLE, seed: int = 0) -> Population:
        parts = (self._lifted(space, space.candidates(limit, seed)) for space in self.spaces)
        return np.concatenate([*parts])

    def only(self, rows: Population) -> Space:
        kept = [
            space.only(rows[is_of_space][:, place])
            for space, place, is_of_space in self._parts(rows)
            if is_of_space.any()
        ]
        some = JoinedSpace(kept, self._known)
        some._scales = self._scales
        return some

    def contains(self, decisions: Decisions) -> bool:
        return any(space.contains(decisions) for space in self._in_turn())

    def described(
        self, population: Population, context: Context = Context.ALONE
    ) -> tuple[Features, Floats]:
        features, seconds, order = [], [], []
        for space, place, is_of_space in self._parts(population):
            features_of_space, estimated = space.described(
                population[is_of_space][:, place], context
            )
            features.append(features_of_space)
            seconds.append(estimated * self._scales[context][space.rule])
            order.append(np.flatnonzero(is_of_space))
        back = np.argsort(np.concatenate(order), kind="stable")
        return Features.joined(features)[back], np.concatenate(seconds)[back]

    def bounds(self, population: Population) -> Floats:
        bounds = np.zeros(len(population))
        for space, place, is_of_space in self._parts(population):
            bounds[is_of_space] = space.bounds(population[is_of_space][:, place])
        return bounds

    @functools.cached_property
    def _default(self) -> tuple[dict[str, int], float]:
        return self._first[0]._default[0], self._known._default[1]

    def first_with(self, knob: str, value: int) -> tuple[dict[str, int], float] | None:
        for space in self._first:
            first = space.first_with(knob, value)
            if first is not None:
                return first[0], first[1] * self._scale_of(space, Context.MODEL)
        return None

    def defaults(self) -> list[dict[str, int]]:
        return [space.default() for space in self.spaces]

    def schedule(self, decisions: Decisions) -> Schedule:
        return self._of(decisions).schedule(decisions)

    def remember(self, decisions: Decisions, trace: str) -> None:
        self._of(decisions).remember(decisions, trace)

    def trace(self, decisions: Decisions) -> str:
        return self._of(decisions).trace(decisions)

    def decisions(self, row: npt.NDArray[np.int64]) -> dict[str, int]:
        return {name: value for name, value in super().decisions(row).items() if value != ABSENT}

    def row(self, decisions: Decisions) -> npt.NDArray[np.int64]:
        space = self._of(decisions)
        row: npt.NDArray[np.int64] = self._lifted(space, space.row(decisions)[None])[0]
        return row

    def sample(self, count: int, rng: np.random.Generator) -> Population:
        share = -(-count // len(self.spaces))
        parts = (self._lifted(space, space.sample(share, rng)) for space in self.spaces)
        return np.concatenate([*parts])[:count]

    def _of(self, decisions: Decisions) -> Space:
        """Return the space to whose knobs the decisions belong. Raises CompilerError if there is
        none."""
        for space in self._in_turn():
            if set(decisions) == {knob.name for knob in space.knobs}:
                return space
        rules = " or ".join(map(str, self.rules))
        raise CompilerError(f"{rules} has no knobs {sorted(decisions)}")

    def _lifted(self, space: Space, rows: Population) -> Population:
        """Convert rows of `space`, one of the joined spaces, to rows of this space: the knobs of
        all other spaces get the value `ABSENT`."""
        lifted = np.full((len(self.knobs), len(rows)), ABSENT, np.int64)
        lifted[self._places[self.spaces.index(space)]] = rows.T
        return lifted.T

    def _parts(self, population: Population) -> list[tuple[Space, slice, npt.NDArray[np.bool_]]]:
        """Return, for each space, the slice of its knobs in a row, and a mask of the rows that
        belong to the space, bool [candidates]."""
        present = population != ABSENT
        parts = []
        for space, place in zip(self.spaces, self._places, strict=True):
            own = np.zeros(len(self.knobs), bool)
            own[place] = True
            parts.append((space, place, (present == own).all(axis=1)))
        return parts

    @functools.cached_property
    def _scales(self) -> Mapping[Context, Mapping[RuleId, float]]:
        """Return, by context and rule, the factor by which to multiply the rule's estimates. It is
        chosen so that the default candidate of the rule has the same estimate as the default of the
        built-in rule."""
        return {
            context: {space.rule: self._scale_of(space, context) for space in self.spaces}
            for context in Context
        }

    def _scale_of(self, space: Space, context: Context) -> float:
        usual, first = (_of_default(each).of(context)[0] for each in (self._known, space))
        scale = float(usual / first)
        # Sketches are estimated in seconds: slower ones stay behind the known rule, and a search
        # spends few trials on them.
        return scale if space in self._first else max(scale, 1.0)

    def _meets(self, columns: Columns) -> npt.NDArray[np.bool_]:
        rows = self._rows(columns)
        meets = np.zeros(len(rows), bool)
        for space, place, is_of_space in self._parts(rows):
            if is_of_space.any():
                meets[is_of_space] = space.valid(rows[is_of_space][:, place])
        return meets

    def _estimated(self, columns: Columns) -> Estimate:
        rows = self._rows(columns)
        in_model, alone = np.full((2, len(rows)), np.nan)
        for space, place, is_of_space in self._parts(rows):
            if is_of_space.any():
                estimate = space._estimate(space.columns(rows[is_of_space][:, place]))
                for seconds, context in ((in_model, Context.MODEL), (alone, Context.ALONE)):
                    seconds[is_of_space] = estimate.of(context) * self._scales[context][space.rule]
        return Estimate(in_model, {}, beside=in_model - alone)


def _of_default(space: Space) -> Estimate:
    """Return the estimate of the default candidate of a space."""
    return space._estimate(space.columns(space.row(space.default())[None]))
