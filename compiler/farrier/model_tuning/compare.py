"""Times variants of a model side by side on the device, kernel by kernel.

Kernels measured alone misrank what weighs on the caches; what counts is how a model runs. All
variants are in one library, so one request measures them in turns, and what happens to the machine
meanwhile happens to all of them. Times do not depend on numbers, so memory stays zero, and no
parameters are packed or sent; sizes that values decide are the typical ones.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import statistics
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from farrier.artifact.calls import CallRecord
from farrier.compile_pool import BuildInput, Compiled, CompilePool
from farrier.compile_pool.choose import ScheduledTask
from farrier.errors import CompilerError
from farrier.ir.dim import typical
from farrier.measure import Blobs, Runner, measure_by, sizes_argument
from farrier.model_tuning.variant import Variant
from farrier.progress import Listener, Warned
from farrier.progress.clock import Clock
from farrier.records.record import Pairs, pairs
from farrier.targets import Plan, Target
from farrier_device.measurement import (
    Argument,
    Blame,
    Candidate,
    CandidateResult,
    CodeObject,
    Launch,
    MeasureRequest,
    MeasureResult,
    Role,
    Status,
    TimingPolicy,
    fast_quartile_mean,
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

_Key: TypeAlias = tuple[str, Pairs]  # a task, and the decisions about it


@dataclasses.dataclass(frozen=True, slots=True)
class CallTimes:
    """The latencies of one call of a variant, in nanoseconds for each run of the model. The names
    of the farm's devices that ran it are separated by commas."""

    call: CallRecord
    samples_ns: tuple[int, ...]
    device: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class FailedVariant:
    """A variant that did not run, and why."""

    reason: str


Outcome: TypeAlias = list[CallTimes] | FailedVariant


@dataclasses.dataclass(frozen=True, slots=True)
class Race:
    """Nanoseconds of every run of a model with defaults only, and of a variant of it; and what a
    run of what is in use, at first the defaults, and one of the variant take that nothing disturbs,
    in each half of the race."""

    default_ns: tuple[int, ...]
    variant_ns: tuple[int, ...]
    in_use_undisturbed_ns: tuple[float, ...]
    variant_undisturbed_ns: tuple[float, ...]

    @property
    def default_ms(self) -> float:
        return statistics.median(self.default_ns) / 1e6

    @property
    def is_won(self) -> bool:
        """Whether the variant is faster than what is in use, nothing disturbing them, in either
        half: of two that take the same time one may win by chance, but seldom twice."""
        halves = zip(self.variant_undisturbed_ns, self.in_use_undisturbed_ns, strict=True)
        return all(variant < in_use for variant, in_use in halves)


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
        helpers: CompilePool | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._target = target
        self._threads = threads
        self._runner = runner
        self._blobs = blobs
        self._helpers = helpers or CompilePool(0, target, threads)
        self._clock = clock or Clock()
        self._compiling = threading.Lock()
        self._made: dict[_Key, Compiled | CompilerError] = {}
        self._floors_ns: dict[str, int] = {}  # by the key of a task
        self._run_s: float | None = None  # of one run of the model, once it is known
        self.compile_s = _COMPILE_S  # of one kernel, as far as is known
        self.racers = 2  # variants that the last race is between

    def by(self, clock: Clock, racers: int) -> Comparison:
        """The same under another clock, by which so many variants race; what is compiled for either
        is there for both."""
        other = copy.copy(self)
        other._clock, other.racers = clock, racers
        return other

    @property
    def devices(self) -> int | None:
        """How many devices measure now; None where it is this machine."""
        return self._runner.devices

    def by_call(self, variants: Sequence[Variant], seconds: float) -> list[Outcome]:
        """The calls of each variant, each timed where it stands, some `seconds` of runs (see
        `cost`), all on one device. Raises ComparisonError where no variant ran, CompilerError."""
        return self.contests([variants], seconds)[0]

    def contests(
        self, contests: Sequence[Sequence[Variant]], seconds: float
    ) -> list[list[Outcome]]:
        """Several comparisons at once, each on one device, of which there may be several. Raises as
        `by_call`, where no variant of any ran."""
        prepared = [self._prepared(variants, seconds) for variants in contests]
        answers = self._answers([one.request for one in prepared])
        return _where_any_ran(
            [one.outcomes([answer]) for one, answer in zip(prepared, answers, strict=True)]
        )

    def pooled(self, variants: Sequence[Variant], seconds: float) -> list[Outcome]:
        """As `by_call`, by several devices, each for its share of the seconds. Each of them
        compares all variants, so a slow one is as unfair to each."""
        count = self.shares(variants[0], seconds)
        prepared = self._prepared(variants, seconds / count)
        answers = self._answers([prepared.request] * count)
        return _where_any_ran([prepared.outcomes(answers)])[0]

    def shares(self, variant: Variant, seconds: float) -> int:
        """By how many devices `pooled` measures for `seconds`: each has time for a few runs."""
        return max(1, min(self.devices or 1, int(seconds / self.cost(variant, 0.0))))

    @property
    def race_s(self) -> float:
        """How long each variant races."""
        least, most = _RACE_S
        budget_s = self._clock.budget_s or 0.0
        runs_s = min(_RACE_RUNS * (self._run_s or 0.0), budget_s / 20)
        return max(min(max(_RACE_SHARE * budget_s, least), most), runs_s)

    def cost(self, variant: Variant, seconds: float) -> float:
        """Seconds that it takes to measure a variant: `seconds`, or what the fewest runs take."""
        fewest = _LEAST_TURNS * _LEAST_RUNS
        return max(seconds, fewest * (self._run_s or predicted(variant)))

    def compile(self, choices: Iterable[ScheduledTask]) -> None:
        """Compile the kernels that are not there yet. Several threads may ask."""
        with self._compiling:
            wanted = {key: one for one in choices if (key := _key(one)) not in self._made}
            if not wanted:
                return
            build_inputs = {}
            for number, one in enumerate(wanted.values(), len(self._made)):
                name = f"{one.task.symbol}_{number}"
                build_inputs[name] = BuildInput(
                    one.space, one.decisions, name, runs_in=one.site.space
                )
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
        return Candidate((Launch(_entry_name(number)),), tuple(arguments))

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
        planned = self._target.backend.plan(
            variant.program, interfaces, self._target, self._threads
        )
        return _Planned(planned, objects)

    def _prepared(self, variants: Sequence[Variant], seconds: float) -> _Prepared:
        """What a comparison asks of a device. Raises CompilerError."""
        plans = self._plans(variants)
        candidates = [
            dataclasses.replace(self._candidate(number, one.plan), parts=_parts(number, one.plan))
            for number, one in enumerate(plans)
        ]
        run_s = self._run_s or predicted(variants[0])
        turns, policy = _schedule(seconds, run_s, self._threads)
        order = [*range(len(candidates))]
        sequence = [n for turn in range(turns) for n in (order[::-1] if turn % 2 else order)]
        code = self._code(plans)
        floors = [self._floors(*one) for one in zip(variants, plans, strict=True)]
        request = MeasureRequest(
            (code,),
            tuple(candidates[n] for n in sequence),
            policy,
            floors_ns=tuple(floors[n] for n in sequence),
        )
        return _Prepared(plans, sequence, request)

    def _floors(self, variant: Variant, planned: _Planned) -> tuple[int, ...]:
        """The nanoseconds that no run of the variant can beat, then those of each of its calls."""
        each = [self._floor(variant.choices[call.task]) for call in planned.plan.calls]
        groups = map(len, planned.plan.parts(""))
        # Of a call in several launches nobody knows how its work is shared out among them.
        of_parts = [
            floor if count == 1 else 0
            for floor, count in zip(each, groups, strict=True)
            for _ in range(count)
        ]
        return (sum(each), *of_parts)

    def _floor(self, choice: ScheduledTask) -> int:
        key = choice.task.key
        if key not in self._floors_ns:
            machine = self._target.part(choice.site.space)
            self._floors_ns[key] = machine.backend.floor_ns(choice.program, machine, self._threads)
        return self._floors_ns[key]

    def _code(self, plans: Sequence[_Planned]) -> CodeObject:
        """Return the library with an entry for each plan, and their kernels."""
        entries = [
            one.plan.measured_entry(self._target, _entry_name(number))
            for number, one in enumerate(plans)
        ]
        symbols = set().union(*(one.plan.symbols for one in plans))
        exports = (*map(_entry_name, range(len(plans))), *sorted(symbols))
        objects = dict.fromkeys(content for one in plans for content in one.objects)
        linked = self._target.backend.library([*entries, *objects], exports, self._target)
        return CodeObject(self._blobs.put(linked), self._target.backend.library_kind)

    def _answers(self, requests: Sequence[MeasureRequest]) -> list[MeasureResult]:
        """What became of each request, all being measured side by side."""
        if len(requests) == 1:
            return [self._answer(requests[0])]
        with ThreadPoolExecutor(len(requests)) as pool:
            return [*pool.map(self._answer, requests)]

    def _answer(self, request: MeasureRequest) -> MeasureResult:
        for _ in range(_FAULTS):
            begin = time.monotonic()
            answer = measure_by(self._clock, self._runner, request, self._blobs)
            if self.devices is None:  # it was this machine
                answer = dataclasses.replace(answer, device="")
            if answer.fault is None:
                ran = [len(one.samples_ns) for one in answer.results if one.status is Status.OK]
                if ran and len(ran) == len(answer.results):
                    runs = sum(ran) + len(ran) * (1 + request.policy.warmup)
                    self._run_s = (answer.run_s or time.monotonic() - begin) / runs
                break
            if answer.blame is Blame.LIBRARY:
                break  # another attempt would meet it again
        return answer


@dataclasses.dataclass(frozen=True, slots=True)
class _Planned:
    """A variant with its memory placed, and the objects that define its kernels."""

    plan: Plan
    objects: Sequence[bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class _Prepared:
    """A comparison of variants: which of them each candidate of the request is."""

    plans: Sequence[_Planned]
    sequence: Sequence[int]
    request: MeasureRequest

    def outcomes(self, answers: Sequence[MeasureResult]) -> list[Outcome]:
        """What became of each variant on the devices that measured, one answer a device."""
        turns: list[list[CandidateResult]] = [[] for _ in self.plans]
        for answer in answers:
            if answer.fault is None:
                for number, result in zip(self.sequence, answer.results, strict=True):
                    turns[number].append(result)
        if not any(turns):
            reason = f"no device could measure: {answers[0].fault} ({answers[0].message})"
            return [FailedVariant(reason) for _ in self.plans]
        devices = ",".join(sorted({one.device for one in answers if one.fault is None} - {""}))
        each = zip(self.plans, turns, strict=True)
        return [_outcome(one.plan, mine, devices) for one, mine in each]


def _outcome(plan: Plan, turns: Sequence[CandidateResult], device: str) -> Outcome:
    for one in turns:
        if one.status is not Status.OK:
            return FailedVariant(f"the model {one.status}: {one.message}")
    parts = iter([_joined(each) for each in zip(*(one.parts_ns for one in turns), strict=True)])
    outcome = []
    for call, group in zip(plan.calls, plan.parts(""), strict=True):
        launches = itertools.islice(parts, len(group))
        samples = tuple(map(sum, zip(*launches, strict=True)))
        outcome.append(CallTimes(call, samples, device))
    return outcome


def _where_any_ran(contests: list[list[Outcome]]) -> list[list[Outcome]]:
    """Raises ComparisonError where no variant of any did."""
    failed = [one for outcomes in contests for one in outcomes if isinstance(one, FailedVariant)]
    if len(failed) == sum(map(len, contests)):
        raise ComparisonError(failed[0].reason)
    return contests


def compared(
    comparison: Comparison, default: Variant, in_use: Variant, variant: Variant, listener: Listener
) -> Race | None:
    """The default, what is `in_use`, which may be the default, and the variant side by side; None,
    with a warning, where they cannot be measured."""
    before = [default] if in_use is default else [default, in_use]
    try:
        outcomes = comparison.by_call([*before, variant], comparison.race_s)
        times = [_times(one) for one in outcomes]
    except ComparisonError as error:
        listener(Warned(f"nothing shows that tuning brought anything: {error}"))
        return None
    return Race(
        _runs(times[0]),
        _runs(times[-1]),
        _undisturbed_halves(times[-2]),
        _undisturbed_halves(times[-1]),
    )


def _times(outcome: Outcome) -> list[CallTimes]:
    """Raises ComparisonError for a variant that failed."""
    if isinstance(outcome, FailedVariant):
        raise ComparisonError(outcome.reason)
    return outcome


def _runs(calls: Sequence[CallTimes]) -> tuple[int, ...]:
    """Nanoseconds of the runs of a model, by those of its calls."""
    each = ([one.call.runs * ns for ns in one.samples_ns] for one in calls)
    return tuple(map(sum, zip(*each, strict=True)))


def _undisturbed_halves(calls: Sequence[CallTimes]) -> tuple[float, float]:
    """Nanoseconds of a run that nothing disturbs, in the first half of the runs and in the second:
    hardly a run of a large model is undisturbed as a whole, but of its calls many are."""

    def of_runs(some: slice) -> float:
        return sum(one.call.runs * fast_quartile_mean(one.samples_ns[some]) for one in calls)

    middle = min(len(one.samples_ns) for one in calls) // 2
    return of_runs(slice(middle)), of_runs(slice(middle, None))


def race_cost(comparison: Comparison, variant: Variant) -> float:
    """Seconds that `compared` takes, about."""
    return comparison.racers * comparison.cost(variant, comparison.race_s) + _LINK_S


def total(choice: ScheduledTask) -> float:
    """Seconds of a kernel's calls, measured or predicted."""
    return choice.seconds


def predicted(variant: Variant) -> float:
    """Seconds of a run of the model: the sum of its kernels'."""
    return sum(map(total, variant.choices.values()))


def _schedule(seconds: float, run_s: float, threads: int) -> tuple[int, TimingPolicy]:
    """Turn, and what to do in each of them, that take `seconds` where a run takes `run_s`. The
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


def _entry_name(number: int) -> str:
    """Return the symbol of the entry of a variant."""
    return f"variant_{number}"


def _parts(number: int, planned: Plan) -> tuple[Launch, ...]:
    return tuple(itertools.chain.from_iterable(planned.parts(_entry_name(number))))


def _joined(runs: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(itertools.chain.from_iterable(runs))
