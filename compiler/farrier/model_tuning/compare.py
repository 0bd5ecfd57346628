"""Times variants of a model side by side on the device, kernel by kernel.

Kernels measured alone misrank what weighs on the caches; what counts is how a model runs. All
variants are in one library, so one request measures them in turns, and what happens to the machine
meanwhile happens to all of them. Times do not depend on numbers, so memory stays zero, and no
parameters are packed or sent; sizes that values decide are the typical ones.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from farrier.artifact.calls import CallRecord
from farrier.errors import CompilerError
from farrier.ir.dim import typical
from farrier.kernels import BuildInput, Compiled, Helpers
from farrier.kernels.choose import ScheduledTask
from farrier.measure import Blobs, Runner, measure_by, sizes_argument
from farrier.model_tuning.variant import Variant
from farrier.progress import Listener, Warned
from farrier.progress.clock import Clock
from farrier.records.record import pairs
from farrier.targets import Plan, Target, backend_of
from farrier_device.measurement import (
    Argument,
    Candidate,
    CandidateResult,
    MeasureRequest,
    Part,
    Role,
    Status,
    TimingPolicy,
    undisturbed,
)

_TURNS = 6  # of each variant, every other one backwards, or more where they would take long
_TURN_S = 0.5
_LEAST_TURNS = 3  # where a run takes long
_USUAL_RUNS = 5  # of a turn
_LEAST_RUNS = 2  # one of them timed
_MIN_REPEATS = 3  # timed runs of a turn, where there is time for them
_MAX_REPEATS = 100
_RACE_S = (1.0, 3.0)  # of each in a race: at least, at most
_RACE_SHARE = 0.02  # of a budget
_RACE_RUNS = 10  # where a twentieth of the budget is enough for them
_LINK_S = 0.3  # to place memory, to link and to load variants
_TIMEOUT_S = 120.0
_FAULTS = 3  # attempts at a device that is lost
_COMPILE_S = 0.2  # of a kernel, until some have been compiled
_TELLING = 8  # kernels whose compilation tells how long the next ones take

_Key: TypeAlias = tuple[str, tuple[tuple[str, int], ...]]  # a task, and the decisions about it


@dataclasses.dataclass(frozen=True, slots=True)
class CallTimes:
    """How long one call of a variant took: nanoseconds of each run of the model."""

    call: CallRecord
    samples_ns: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Race:
    """Nanoseconds of every run of a model with defaults only, and of a variant of it; and what a
    run of each takes that nothing disturbs, in each half of the race."""

    default_ns: tuple[int, ...]
    variant_ns: tuple[int, ...]
    default_undisturbed_ns: tuple[float, ...]
    variant_undisturbed_ns: tuple[float, ...]

    @property
    def default_ms(self) -> float:
        return statistics.median(self.default_ns) / 1e6

    @property
    def is_won(self) -> bool:
        """Whether the variant is the faster one where nothing disturbs them, in either half: of
        two that take the same time one may win by chance, but seldom twice."""
        halves = zip(self.variant_undisturbed_ns, self.default_undisturbed_ns, strict=True)
        return all(variant < default for variant, default in halves)


def mean_samples(calls: Sequence[Sequence[int]], count: int | None = None) -> tuple[int, ...]:
    """Samples of several calls as those of one, the fastest first: the means of their fastest, of
    their second fastest, and so on; or sums over `count`, where a call is a part of something. A
    disturbance that some calls of a run had and others had not then spoils none of the fastest. Of
    calls with more samples than others those at equal shares of the ranks count."""
    fewest = min(map(len, calls), default=0)
    ranked = zip(*(_ranks(one, fewest) for one in calls), strict=True)
    return tuple(round(sum(place) / (count or len(calls))) for place in ranked)


def _ranks(samples: Sequence[int], count: int) -> list[int]:
    """`count` of the samples, from the fastest to the slowest."""
    ordered = sorted(samples)
    return [ordered[(2 * place + 1) * len(ordered) // (2 * count)] for place in range(count)]


class ComparisonError(Exception):
    """The variants could not be measured; the message says why."""


class Comparison:
    """Measures variants of one model. What was compiled for one is there for the others."""

    def __init__(
        self,
        target: Target,
        threads: int,
        runner: Runner,
        blobs: Blobs,
        helpers: Helpers | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._target = target
        self._threads = threads
        self._runner = runner
        self._blobs = blobs
        self._helpers = helpers or Helpers(0, target, threads)
        self._clock = clock or Clock()
        self._made: dict[_Key, Compiled | CompilerError] = {}
        self._run_s: float | None = None  # of one run of the model, once it is known
        self.compile_s = _COMPILE_S  # of one kernel, as far as is known

    def by_call(self, variants: Sequence[Variant], seconds: float) -> list[list[CallTimes]]:
        """The calls of each variant, each timed where it stands, some `seconds` of runs (see
        `cost`). Raises ComparisonError where no device could measure, or a variant fails,
        CompilerError."""
        plans = self._plans(variants)
        candidates = [
            dataclasses.replace(self._candidate(number, one.plan), parts=_parts(one.plan))
            for number, one in enumerate(plans)
        ]
        run_s = self._run_s or predicted(variants[0])
        times = self._measure(plans, candidates, seconds, run_s)
        return [
            [CallTimes(*call) for call in zip(one.plan.calls, parts, strict=True)]
            for one, parts in zip(plans, times, strict=True)
        ]

    @property
    def race_s(self) -> float:
        """How long each of two variants races."""
        least, most = _RACE_S
        budget_s = self._clock.budget_s or 0.0
        runs_s = min(_RACE_RUNS * (self._run_s or 0.0), budget_s / 20)
        return max(min(max(_RACE_SHARE * budget_s, least), most), runs_s)

    def cost(self, variant: Variant, seconds: float) -> float:
        """Seconds that it takes to measure a variant: `seconds`, or what the fewest runs take."""
        fewest = _LEAST_TURNS * _LEAST_RUNS
        return max(seconds, fewest * (self._run_s or predicted(variant)))

    def compile(self, choices: Iterable[ScheduledTask]) -> None:
        """Compiles the kernels that are not there yet."""
        wanted = {key: one for one in choices if (key := _key(one)) not in self._made}
        if not wanted:
            return
        build_inputs = {}
        for number, one in enumerate(wanted.values(), len(self._made)):
            name = f"{one.task.symbol}_{number}"
            build_inputs[name] = BuildInput(one.space, one.decisions, name)
        begin = time.monotonic()
        with self._clock.work("compile"):
            made = self._helpers.build(build_inputs)
        self._made |= dict(zip(wanted, made.values(), strict=True))
        if len(wanted) >= _TELLING:
            self.compile_s = (time.monotonic() - begin) / len(wanted)

    def is_compiled(self, choice: ScheduledTask) -> bool:
        """Whether `compile` made a kernel of a choice, and did not fail."""
        return isinstance(self._made.get(_key(choice)), Compiled)

    def _candidate(self, number: int, planned: Plan) -> Candidate:
        """The whole model at its typical sizes, on memory of its own."""
        sizes = [*planned.inputs, *planned.outputs]
        sizes += [planned.params_bytes, typical(planned.memory.workspace_bytes)]
        arguments = [Argument(Role.SCRATCH, nbytes) for nbytes in sizes]
        arguments += sizes_argument(planned.sizes, self._blobs)
        return Candidate(f"variant_{number}", tuple(arguments))

    def _plans(self, variants: Sequence[Variant]) -> list[_Planned]:
        """The variants with their memory placed, and what they consist of. Raises CompilerError."""
        self.compile(choice for variant in variants for choice in variant.choices.values())
        return [self._planned(variant) for variant in variants]

    def _planned(self, variant: Variant) -> _Planned:
        interfaces, objects = {}, []
        for key, choice in variant.choices.items():
            made = self._made[_key(choice)]
            if isinstance(made, CompilerError):
                raise made
            interfaces[key] = made.interface
            objects.append(made.content)
        backend = backend_of(self._target)
        planned = backend.plan(variant.program, interfaces, self._target, self._threads)
        return _Planned(planned, objects)

    def _measure(
        self,
        plans: Sequence[_Planned],
        candidates: Sequence[Candidate],
        seconds: float,
        run_s: float,
    ) -> list[list[tuple[int, ...]]]:
        """Samples of each part of each candidate, over all turns."""
        turns, policy = _schedule(seconds, run_s, self._threads)
        order = [*range(len(candidates))]
        sequence = [n for turn in range(turns) for n in (order[::-1] if turn % 2 else order)]
        request = MeasureRequest(
            self._library(plans, candidates), tuple(candidates[n] for n in sequence), policy
        )
        begin = time.monotonic()
        results = self._run(request)
        runs = sum(len(one.samples_ns) + 1 + policy.warmup for one in results)
        self._run_s = (time.monotonic() - begin) / runs
        measured = []
        for number in order:
            mine = [one for n, one in zip(sequence, results, strict=True) if n == number]
            parts = zip(*(one.parts_ns for one in mine), strict=True)
            measured.append([*map(_joined, parts)])
        return measured

    def _library(self, plans: Sequence[_Planned], candidates: Sequence[Candidate]) -> str:
        """The blob with the entries of all candidates, and their kernels."""
        entries = [
            one.plan.measured_entry(self._target, candidates[number].symbol)
            for number, one in enumerate(plans)
        ]
        symbols = set().union(*(one.plan.symbols for one in plans))
        exports = (*(one.symbol for one in candidates), *sorted(symbols))
        objects = dict.fromkeys(content for one in plans for content in one.objects)
        linked = backend_of(self._target).library([*entries, *objects], exports, self._target)
        return self._blobs.put(linked)

    def _run(self, request: MeasureRequest) -> Sequence[CandidateResult]:
        for _ in range(_FAULTS):
            answer = measure_by(self._clock, self._runner, request, self._blobs)
            if answer.fault is None:
                failed = [one for one in answer.results if one.status is not Status.OK]
                if failed:
                    raise ComparisonError(f"the model {failed[0].status}: {failed[0].message}")
                return answer.results
        raise ComparisonError(f"no device could measure: {answer.fault} ({answer.message})")


@dataclasses.dataclass(frozen=True, slots=True)
class _Planned:
    """A variant with its memory placed, and the objects that define its kernels."""

    plan: Plan
    objects: Sequence[bytes]


def compared(
    comparison: Comparison, default: Variant, variant: Variant, listener: Listener
) -> Race | None:
    """The two side by side; None, with a warning, where they cannot be measured."""
    try:
        times = comparison.by_call([default, variant], comparison.race_s)
    except ComparisonError as error:
        listener(Warned(f"nothing shows that tuning brought anything: {error}"))
        return None
    return Race(*map(_runs, times), *map(_undisturbed_halves, times))


def _runs(calls: Sequence[CallTimes]) -> tuple[int, ...]:
    """Nanoseconds of the runs of a model, by those of its calls."""
    each = ([one.call.runs * ns for ns in one.samples_ns] for one in calls)
    return tuple(map(sum, zip(*each, strict=True)))


def _undisturbed_halves(calls: Sequence[CallTimes]) -> tuple[float, float]:
    """Nanoseconds of a run that nothing disturbs, in the first half of the runs and in the second:
    hardly a run of a large model is undisturbed as a whole, but of its calls many are."""

    def of_runs(some: slice) -> float:
        return sum(one.call.runs * undisturbed(one.samples_ns[some]) for one in calls)

    middle = min(len(one.samples_ns) for one in calls) // 2
    return of_runs(slice(middle)), of_runs(slice(middle, None))


def race_cost(comparison: Comparison, variant: Variant) -> float:
    """Seconds that `compared` takes, about."""
    return 2 * comparison.cost(variant, comparison.race_s) + _LINK_S


def total(choice: ScheduledTask) -> float:
    """Seconds of a kernel's calls, measured or predicted."""
    known = choice.measured_s
    return choice.calls * (choice.space.seconds(choice.decisions) if known is None else known)


def predicted(variant: Variant) -> float:
    """Seconds of a run of the model: the sum of its kernels'."""
    return sum(map(total, variant.choices.values()))


def _schedule(seconds: float, run_s: float, threads: int) -> tuple[int, TimingPolicy]:
    """PhaseAxis, and what to do in each of them, that take `seconds` where a run takes `run_s`. The
    first run of a turn is not timed, and one more where there is time for it."""
    runs = int(seconds / run_s)
    most = max(_TURNS, int(seconds / _TURN_S))
    turns = min(max(runs // _USUAL_RUNS, _LEAST_TURNS), most)
    each = max(runs // turns, _LEAST_RUNS)
    warmup = int(each >= _USUAL_RUNS)
    return turns, TimingPolicy(
        threads=threads,
        warmup=warmup,
        min_repeats=min(each - 1 - warmup, _MIN_REPEATS),
        max_repeats=_MAX_REPEATS,
        min_time_s=max(0.0, seconds / turns - (1 + warmup) * run_s),
        timeout_s=_TIMEOUT_S,
    )


def _key(choice: ScheduledTask) -> _Key:
    return choice.task.key, pairs(choice.decisions)


def _parts(planned: Plan) -> tuple[Part, ...]:
    return tuple(
        Part(call.function, tuple((one.position, one.offset) for one in call.arguments))
        for call in planned.calls
    )


def _joined(runs: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(itertools.chain.from_iterable(runs))
