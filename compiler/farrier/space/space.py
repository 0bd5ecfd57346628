"""A schedule space: knobs, a constraint on their values, an analytic cost model, and a recipe that
turns values into a schedule.

A search works on a population at once: a matrix of knob values, one row for each candidate and one
column for each knob. No loop nest is built until a candidate is measured.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.errors import CompilerError
from farrier.records import Context, RuleId
from farrier.space.features import Features

if TYPE_CHECKING:
    from farrier.ir import loop, tensor
    from farrier.schedule import Schedule

Population: TypeAlias = npt.NDArray[np.int64]  # [candidates, knobs], values of the knobs
Columns: TypeAlias = dict[
    str, npt.NDArray[np.int64]
]  # The same by the knob's name, each [candidates].
Decisions: TypeAlias = Mapping[str, int]  # One candidate: the value of every knob.
Floats: TypeAlias = npt.NDArray[np.float64]

LEAST = 1e-6  # A smaller share of an estimate counts as this share in features.
WHOLE = 1 << 17  # A product of knobs up to this size is enumerated, a larger one sampled.


@dataclasses.dataclass(frozen=True, slots=True)
class Knob:
    """One scheduling decision and its possible values, which are distinct. If a value encodes
    several numbers, `parts` maps an array of values [candidates] to these numbers by name, each
    [candidates]."""

    name: str
    values: tuple[int, ...]
    parts: Callable[[npt.NDArray[np.int64]], Columns] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """The analytic model's estimate for a population; each array has shape [candidates].

    `terms` are the components of the predicted seconds, named as in `TERMS`; the learned model uses
    them as features, so a name has the same meaning in every rule. `beside` is the part of the
    seconds that a candidate loses within a model, because the preceding kernels have filled the
    caches with other data. If the kernel is measured alone, this part is subtracted.
    """

    seconds: Floats
    terms: Mapping[str, Floats]
    beside: Floats | float = 0.0

    def of(self, context: Context) -> Floats:
        """Return the predicted seconds of the candidates when measured in this context."""
        return self.seconds - self.beside if context is Context.ALONE else self.seconds


# The terms that rules may report: first times, in seconds on one thread.
TIMES = (
    "compute",  # Arithmetic at peak throughput.
    "latency",  # The additional time of dependent operations.
    "load",  # Load and store ports, data in the first-level cache.
    "l2",  # Traffic beyond the first-level cache.
    "memory",  # Traffic beyond the second-level cache, cold weights included.
    "late",  # The time until weights arrive that are not fetched ahead.
    "overhead",  # Loops, tile prologues and epilogues, fork and join.
)
TERMS = (
    *TIMES,
    "tiles",  # The number of register tiles, or rows.
    "balance",  # The work of the busiest thread over the mean.
    "registers",  # The share of the target's registers live in the innermost loop.
    "waste",  # The computed lanes and points over the required ones.
    "code",  # The instructions of the unrolled innermost body.
)
PANEL = "vectors"  # The knob, of rules that have it, for the width of panels of packed constants.


class Kernel(Protocol):
    """The interface of a kernel that a rule schedules. A `Space` is built from these methods."""

    def knobs(self) -> tuple[Knob, ...]: ...

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]: ...

    def estimate(self, columns: Columns) -> Estimate: ...

    def schedule(self, decisions: Decisions) -> Schedule: ...


class Space:
    """All schedules of one task by one rule.

    `constraint` returns a mask of the allowed rows, `estimate` their predicted time, and `recipe`
    turns one row into a schedule of the task's naive loop nests. A space is never empty. `program`
    is the argument of `for_program`, from which another process builds an equal space. `about`
    holds features of the task and the machine, which all candidates share. `passed_over` lists why
    earlier rules do not schedule the task. `slow_reason` is the reason why the default runs element
    by element on one thread; None if it does not.
    """

    def __init__(
        self,
        rule: RuleId,
        knobs: tuple[Knob, ...] | Callable[[], tuple[Knob, ...]],
        constraint: Callable[[Columns], npt.NDArray[np.bool_]],
        estimate: Callable[[Columns], Estimate],
        recipe: Callable[[Decisions], Schedule],
    ) -> None:
        self.rule = rule
        self._knobs = knobs
        self._constraint = constraint
        self._estimate = estimate
        self._recipe = recipe
        self.program: tensor.TensorProgram | loop.Function | None = (
            None  # The computation that the schedules are of.
        )
        self.describe: Callable[[], Mapping[str, float]] = dict  # Computes `about`.
        self.passed_over: tuple[str, ...] = ()
        self.slow_reason: str | None = None
        self._tried: tuple[Decisions, Schedule] | None = None  # The result of `try_default`.
        self._whole: Population | None = None
        self._traces: dict[bytes, str] = {}  # Traces of schedules by row.

    @classmethod
    def of(cls, rule: RuleId, kernel: Kernel) -> Space:
        """Return the space of all schedules of `kernel` by `rule`."""
        return cls(rule, kernel.knobs(), kernel.allowed, kernel.estimate, kernel.schedule)

    @functools.cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """The scheduling decisions of a candidate, in the order of the columns of a row."""
        return self._knobs() if callable(self._knobs) else self._knobs

    @property
    def rules(self) -> tuple[RuleId, ...]:
        """The rules to which candidates of this space may belong."""
        return (self.rule,)

    def rule_of(self, decisions: Decisions) -> RuleId:
        """Return the rule to which these decisions belong. Raises CompilerError for other knobs."""
        self.row(decisions)
        return self.rule

    @functools.cached_property
    def about(self) -> Mapping[str, float]:
        """The features of task and machine, computed when the learned model first reads them."""
        return self.describe()

    @property
    def built_in(self) -> Space:
        """The part of this space that belongs to the target's own rule for the task, without the
        candidates of templates."""
        return self

    def is_learned(self, population: Population) -> npt.NDArray[np.bool_]:
        """Return a mask [candidates] of the candidates whose rule was among the training data of
        the shipped cost model."""
        return np.ones(len(population), bool)

    @property
    def size(self) -> int:
        """The number of all rows, allowed or not."""
        return math.prod(len(knob.values) for knob in self.knobs)

    @property
    def derived_size(self) -> int:
        """The `size` of the space without the spaces that are only derived when a search asks for
        candidates."""
        return self.size

    @property
    def is_whole(self) -> bool:
        """Check whether `candidates` returns every allowed row rather than a sample."""
        return self._whole is not None or self.size <= WHOLE

    @property
    def bound(self) -> float:
        """A lower bound of the seconds of any candidate on one thread, by its arithmetic or memory
        traffic."""
        return self._ranked[2]

    def candidates(self, limit: int = WHOLE, seed: int = 0) -> Population:
        """Return every allowed row, or a sample of at most `limit` allowed rows of a larger space.
        The result is deterministic. Raises CompilerError if no row is allowed, which is a defect of
        the rule."""
        if self.is_whole:
            if self._whole is None:
                self._whole = self._allowed(self._enumerate())
            rows = self._whole
        else:
            rows = self._allowed(self.sample(limit, np.random.default_rng(seed)))
        if not len(rows):
            raise CompilerError(f"the space of {self.rule} is empty: {self.knobs}")
        return rows

    def only(self, rows: Population) -> Space:
        """Return a space like this one restricted to the allowed rows `rows`."""
        listed = {row.tobytes() for row in rows}

        def constraint(columns: Columns) -> npt.NDArray[np.bool_]:
            return np.array([row.tobytes() in listed for row in self._rows(columns)], bool)

        space = Space(self.rule, self.knobs, constraint, self._estimate, self._recipe)
        space._whole, space.describe = rows, lambda: self.about
        return space

    def valid(self, population: Population) -> npt.NDArray[np.bool_]:
        """Return a mask, bool [candidates], of the rows whose values are among those of the knobs
        and that meet the constraint."""
        listed = np.ones(len(population), bool)
        for column, knob in enumerate(self.knobs):
            listed &= np.isin(population[:, column], knob.values)
        return listed & self._constraint(self.columns(population))

    def contains(self, decisions: Decisions) -> bool:
        """Check whether `decisions`, such as those of a record, are a candidate of this space."""
        if set(decisions) != {knob.name for knob in self.knobs}:
            return False
        return bool(self.valid(self.row(decisions)[None])[0])

    def cost(self, population: Population, context: Context = Context.MODEL) -> Floats:
        """Return the predicted seconds of one call of each candidate in `context`, [candidates]."""
        return self._estimate(self.columns(population)).of(context)

    def costs(self, context: Context = Context.MODEL) -> Floats:
        """Return the cached `cost` of each of the `candidates`."""
        return self._ranked[1].of(context)

    def bounds(self, population: Population) -> Floats:
        """Return a lower bound of the seconds of each candidate on one thread, [candidates]. It
        follows from the arithmetic and the memory traffic of the candidate itself."""
        terms = self._estimate(self.columns(population)).terms
        none = np.zeros(len(population))
        return np.maximum(terms.get("compute", none), terms.get("memory", none))

    def described(
        self, population: Population, context: Context = Context.ALONE
    ) -> tuple[Features, Floats]:
        """Return the features of each candidate for the learned model, and the predicted seconds of
        a call measured in `context`, both from one estimate.

        They are the analytic model's seconds; its terms, as fractions of the seconds, so that they
        are comparable between machines; its counts; and the values of the knobs. If a value encodes
        several numbers, each of them is a feature. All features except those in `about` are
        logarithms.
        """
        columns = self.columns(population)
        estimate = self._estimate(columns)
        seconds = estimate.of(context)
        features = {"seconds": np.log2(seconds)}
        for name in TERMS:
            if name in estimate.terms:
                term = estimate.terms[name]
                if name in TIMES:
                    term = term / seconds
                features[name] = np.log2(np.maximum(term, LEAST))
        for knob in self.knobs:
            values = columns[knob.name]
            parts = {"": values} if knob.parts is None else knob.parts(values)
            for part, numbers in parts.items():
                name = ".".join(filter(None, ("knob", knob.name, part)))
                features[name] = np.log2(1.0 + np.maximum(numbers, 0))
        for name, value in self.about.items():
            features[name] = np.full(len(population), value)
        return Features.of(features), seconds

    def default(self) -> dict[str, int]:
        """Return the candidate that the analytic model ranks first, for use when nothing was
        measured."""
        return dict(self._default[0])

    def defaults(self) -> list[dict[str, int]]:
        """Return the candidate that each rule of the space ranks first. The candidate of the
        space's own rule comes first."""
        return [self.default()]

    def seconds(self, decisions: Decisions) -> float:
        """Return the predicted seconds of one call of a candidate."""
        default, seconds = self._default
        if decisions != default:
            seconds = float(self.cost(self.row(decisions)[None])[0])
        return seconds

    @functools.cached_property
    def _default(self) -> tuple[dict[str, int], float]:
        """The candidate that the analytic model ranks first, and its predicted seconds."""
        rows, costs = self._ranked[0], self.costs()
        first = int(np.argmin(costs))
        return self.decisions(rows[first]), float(costs[first])

    @functools.cached_property
    def _ranked(self) -> tuple[Population, Estimate, float]:
        """The candidates, their estimates without terms, and the lower bound of all."""
        rows = self.candidates()
        estimate = self._estimate(self.columns(rows))
        terms = (estimate.terms.get(term) for term in ("compute", "memory"))
        bound = max((float(term.min()) for term in terms if term is not None), default=0.0)
        return rows, dataclasses.replace(estimate, terms={}), bound

    def first_with(self, knob: str, value: int) -> tuple[dict[str, int], float] | None:
        """Return the best-ranked candidate for which the knob has this value, and its predicted
        seconds; None without such a candidate."""
        if knob not in (declared.name for declared in self.knobs):
            return None
        rows, costs = self._ranked[0], self.costs()
        listed = self.columns(rows)[knob] == value
        if not listed.any():
            return None
        rows, costs = rows[listed], costs[listed]
        first = int(np.argmin(costs))
        return self.decisions(rows[first]), float(costs[first])

    def try_default(self) -> None:
        """Schedule the default candidate and cache the result for the next call of `schedule`.
        Raises the errors of `schedule`."""
        decisions = self.default()
        self._tried = decisions, self.schedule(decisions)

    def schedule(self, decisions: Decisions) -> Schedule:
        """Return the schedule of a candidate, including its trace. Raises CompilerError for
        decisions that are not allowed, and ScheduleError if the recipe does not apply, which is a
        defect of the rule."""
        if not self.contains(decisions):
            raise CompilerError(f"{self.rule} does not allow {dict(decisions)}")
        tried, self._tried = self._tried, None
        if tried is not None and tried[0] == decisions:
            return tried[1]
        schedule = self._recipe(decisions)
        self.remember(decisions, str(schedule.trace))
        return schedule

    def remember(self, decisions: Decisions, trace: str) -> None:
        """Cache the trace of a candidate that another process scheduled."""
        self._traces[self.row(decisions).tobytes()] = trace

    def trace(self, decisions: Decisions) -> str:
        """Return the trace of a candidate's schedule as text, one primitive per line; the text is
        cached. Raises the errors of `schedule`."""
        key = self.row(decisions).tobytes()
        if key not in self._traces:
            self.schedule(decisions)
        return self._traces[key]

    def columns(self, population: Population) -> Columns:
        """Return the columns of a population by the names of the knobs."""
        return {knob.name: population[:, i] for i, knob in enumerate(self.knobs)}

    def decisions(self, row: npt.NDArray[np.int64]) -> dict[str, int]:
        """Return one row of a population as a mapping from knob to value."""
        return {knob.name: int(value) for knob, value in zip(self.knobs, row, strict=True)}

    def row(self, decisions: Decisions) -> npt.NDArray[np.int64]:
        """Return the row of values for a mapping from knob to value, int64 [knobs]. Raises
        CompilerError for other knobs."""
        if set(decisions) != {knob.name for knob in self.knobs}:
            raise CompilerError(f"{self.rule} has no knobs {sorted(decisions)}")
        return np.array([decisions[knob.name] for knob in self.knobs], np.int64)

    def sample(self, count: int, rng: np.random.Generator) -> Population:
        """Return `count` rows of random values, which need not be allowed."""
        picks = [rng.choice(np.array(knob.values), count) for knob in self.knobs]
        return np.stack(picks, axis=1).astype(np.int64)

    def neighbours(self, row: npt.NDArray[np.int64]) -> Population:
        """Return every allowed row that differs from `row` in exactly one knob."""
        rows = []
        for column, knob in enumerate(self.knobs):
            for value in knob.values:
                if value != row[column]:
                    other = row.copy()
                    other[column] = value
                    rows.append(other)
        return self._allowed(np.array(rows, np.int64).reshape(-1, len(self.knobs)))

    def mutate(self, population: Population, rng: np.random.Generator) -> Population:
        """Return a copy of each row in which one random knob has a random value. Rows that are not
        allowed are left out."""
        changed = population.copy()
        columns = rng.integers(len(self.knobs), size=len(population))
        for column, knob in enumerate(self.knobs):
            rows = np.flatnonzero(columns == column)
            changed[rows, column] = rng.choice(np.array(knob.values), len(rows))
        return self._allowed(changed)

    def crossover(
        self, mothers: Population, fathers: Population, rng: np.random.Generator
    ) -> Population:
        """Return rows in which each knob has the value of either parent, chosen at random. Rows
        that are not allowed are left out."""
        return self._allowed(np.where(rng.random(mothers.shape) < 0.5, mothers, fathers))

    def _rows(self, columns: Columns) -> Population:
        """Return the population with these columns; the inverse of `columns`."""
        return np.stack([columns[knob.name] for knob in self.knobs], axis=1)

    def _allowed(self, population: Population) -> Population:
        return population.T[:, self._constraint(self.columns(population))].T

    def _enumerate(self) -> Population:
        """Return every row, allowed or not, in an order in which equal values of a knob are
        contiguous, as analytic models evaluate knob by knob."""
        values = [np.array(knob.values, np.int64) for knob in self.knobs]
        grids = np.meshgrid(*values, indexing="ij", copy=False)
        return np.stack(grids).reshape(len(values), -1).T
