"""Time variants of a model against each other on the device, kernel by kernel.

Measuring kernels alone ranks kernels wrongly that put load on the caches, so variants are measured
as complete models. All variants are linked into one library: one request measures them in
alternation, so that changes of the machine's speed affect all of them equally. Times do not depend
on the values in memory, so memory stays zero, and no parameters are packed or sent; sizes that
values decide are the typical ones.
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

_TURNS = 6  # Turns of each variant, every other one in reverse; more if a turn would take long.
_TURN_S = 0.5
_LEAST_TURNS = 3  # The least number for a model that takes long.
_USUAL_RUNS = 5  # Of a turn.
_LEAST_RUNS = 2  # The least number of runs in a turn; one of them is timed.
_MIN_REPEATS = 3  # The least number of timed runs of a turn, if there is time for them.
_MAX_REPEATS = 100
_RACE_S = (1.0, 3.0)  # The least and greatest time of each variant in a race.
_RACE_SHARE = 0.02  # The time of a race as a fraction of the budget.
_RACE_RUNS = 10  # The number of runs of a race if a twentieth of the budget is enough for them.
_LINK_S = 0.3  # The time to place memory, to link and to load variants.
_TIMEOUT_S = 120.0
_FAULTS = 3  # The number of attempts if the device is lost.
_COMPILE_S = 0.2  # The time of a kernel's compilation, before some have been compiled.
# From this number of kernels on, their compilation predicts the time of the next ones.
_TELLING = 8

_Key: TypeAlias = tuple[str, Pairs]  # A task, and the decisions about it.


@dataclasses.dataclass(frozen=True, slots=True)
class CallTimes:
    """The times of one call of a variant in nanoseconds, one for each run of the model. `device`
    lists the names of the farm's devices that ran the variant, separated by commas."""

    call: CallRecord
    samples_ns: tuple[int, ...]
    device: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class FailedVariant:
    """The outcome of a variant that did not run, with the reason."""

    reason: str


Outcome: TypeAlias = list[CallTimes] | FailedVariant


@dataclasses.dataclass(frozen=True, slots=True)
class Race:
    """The result of measuring three variants in alternation: the default, the variant in use (at
    first the default itself), and a new variant.

    `default_ns` and `variant_ns` are the times of all runs of the default and of the new variant.
    The other fields are estimates of the time of an undisturbed run, of the variant in use and of
    the new one. Each has two numbers: one from the first half of the runs, and one from the second.
    """

    default_ns: tuple[int, ...]
    variant_ns: tuple[int, ...]
    in_use_undisturbed_ns: tuple[float, ...]
    variant_undisturbed_ns: tuple[float, ...]

    @property
    def default_ms(self) -> float:
        return statistics.median(self.default_ns) / 1e6

    @property
    def is_won(self) -> bool:
        """Check whether the new variant is faster than the variant in use in both halves of the
        runs, by undisturbed time. Of two equally fast variants one may be faster by chance, but
        seldom twice."""
        halves = zip(self.variant_undisturbed_ns, self.in_use_undisturbed_ns, strict=True)
        return all(variant < in_use for variant, in_use in halves)


def mean_samples(calls: Sequence[Sequence[int]], count: int | None = None) -> tuple[int, ...]:
    """Merge the samples of several calls into those of one call, the fastest first: the mean of
    their fastest samples, of their second fastest, and so on.

    With `count`, the sums are divided by that instead of the number of calls, for calls that are
    parts of `count` layers. Averaging by rank keeps a disturbance that hit some calls of a run out
    of the fastest samples. A call with more samples than others contributes samples at evenly
    spaced ranks.
    """
    fewest = min(map(len, calls), default=0)
    ranked = zip(*(_ranks(samples, fewest) for samples in calls), strict=True)
    return tuple(round(sum(place) / (count or len(calls))) for place in ranked)


def _ranks(samples: Sequence[int], count: int) -> list[int]:
    """Return `count` of the samples at evenly spaced ranks, the fastest first."""
    ordered = sorted(samples)
    return [ordered[(2 * place + 1) * len(ordered) // (2 * count)] for place in range(count)]


class ComparisonError(Exception):
    """An error: the variants could not be measured; the message states the reason."""


class Comparison:
    """A measurer of variants of one model. Kernels compiled for one variant are reused for the
    others."""

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
        self._floors_ns: dict[str, int] = {}  # By the key of a task.
        self._run_s: float | None = None  # The time of one run of the model, once it is measured.
        self.compile_s = _COMPILE_S  # The time of one kernel, from the latest measurement.
        self.racers = 2  # The number of variants in the last race.

    def by(self, clock: Clock, racers: int) -> Comparison:
        """Return a copy that charges its time to another clock and expects `racers` variants in a
        race; the copy and the original share their compiled kernels."""
        other = copy.copy(self)
        other._clock, other.racers = clock, racers
        return other

    @property
    def devices(self) -> int | None:
        """The number of remote devices that measure now; None if this machine measures."""
        return self._runner.devices

    def by_call(self, variants: Sequence[Variant], seconds: float) -> list[Outcome]:
        """Run each variant for `seconds` (see `cost`), all on one device, and measure each of its
        calls within the run. Raises ComparisonError if no variant ran, and CompilerError."""
        return self.contests([variants], seconds)[0]

    def contests(
        self, contests: Sequence[Sequence[Variant]], seconds: float
    ) -> list[list[Outcome]]:
        """Run several comparisons in parallel, each on one device. Raises ComparisonError if no
        variant of any comparison ran, and CompilerError."""
        prepared = [self._prepared(variants, seconds) for variants in contests]
        answers = self._answers([comparison.request for comparison in prepared])
        return _where_any_ran(
            [
                comparison.outcomes([answer])
                for comparison, answer in zip(prepared, answers, strict=True)
            ]
        )

    def pooled(self, variants: Sequence[Variant], seconds: float) -> list[Outcome]:
        """Measure as `by_call` does, but on several devices, which divide the seconds among
        themselves. Each device compares all variants, so a slow device affects all equally."""
        count = self.shares(variants[0], seconds)
        prepared = self._prepared(variants, seconds / count)
        answers = self._answers([prepared.request] * count)
        return _where_any_ran([prepared.outcomes(answers)])[0]

    def shares(self, variant: Variant, seconds: float) -> int:
        """Return among how many devices `seconds` can be divided, so that each device can still run
        the variant a few times."""
        return max(1, min(self.devices or 1, int(seconds / self.cost(variant, 0.0))))

    @property
    def race_s(self) -> float:
        """The seconds for which each variant runs in a race."""
        least, most = _RACE_S
        budget_s = self._clock.budget_s or 0.0
        runs_s = min(_RACE_RUNS * (self._run_s or 0.0), budget_s / 20)
        return max(min(max(_RACE_SHARE * budget_s, least), most), runs_s)

    def cost(self, variant: Variant, seconds: float) -> float:
        """Return the seconds to measure a variant for `seconds`: more if the minimum number of runs
        takes longer."""
        fewest = _LEAST_TURNS * _LEAST_RUNS
        return max(seconds, fewest * (self._run_s or predicted(variant)))

    def compile(self, choices: Iterable[ScheduledTask]) -> None:
        """Compile the kernels of `choices` that have not been compiled yet. Thread-safe."""
        with self._compiling:
            wanted = {key: choice for choice in choices if (key := _key(choice)) not in self._made}
            if not wanted:
                return
            build_inputs = {}
            for number, choice in enumerate(wanted.values(), len(self._made)):
                name = f"{choice.task.symbol}_{number}"
                build_inputs[name] = BuildInput(
                    choice.space, choice.decisions, name, runs_in=choice.site.space
                )
            begin = time.monotonic()
            with self._clock.work("compile"):
                compiled = self._helpers.build(build_inputs)
            self._made |= dict(zip(wanted, compiled.values(), strict=True))
            if len(wanted) >= _TELLING:
                self.compile_s = (time.monotonic() - begin) / len(wanted)

    def is_compiled(self, choice: ScheduledTask) -> bool:
        """Check whether the kernel of a choice was compiled without an error."""
        return isinstance(self._made.get(_key(choice)), Compiled)

    def _candidate(self, number: int, planned: Plan) -> Candidate:
        """Return the complete model at its typical sizes, with its memory, as candidate `number` of
        a request."""
        sizes = [*planned.inputs, *planned.outputs]
        sizes += [planned.params_bytes, typical(planned.memory.workspace_bytes)]
        arguments = [Argument(Role.SCRATCH, nbytes) for nbytes in sizes]
        arguments += sizes_argument(planned.sizes, self._blobs)
        return Candidate((Launch(_entry_name(number)),), tuple(arguments))

    def _plans(self, variants: Sequence[Variant]) -> list[_Planned]:
        """Return the variants with their memory plans and the object files of their kernels. Raises
        CompilerError."""
        self.compile(choice for variant in variants for choice in variant.choices.values())
        return [self._planned(variant) for variant in variants]

    def _planned(self, variant: Variant) -> _Planned:
        interfaces, objects = {}, []
        for key, choice in variant.choices.items():
            compiled = self._made[_key(choice)]
            if isinstance(compiled, CompilerError):
                raise compiled
            interfaces[key] = compiled.interface
            objects.append(compiled.content)
        planned = self._target.backend.plan(
            variant.program, interfaces, self._target, self._threads
        )
        return _Planned(planned, objects)

    def _prepared(self, variants: Sequence[Variant], seconds: float) -> _Prepared:
        """Return the request that asks a device to compare the variants. Raises CompilerError."""
        plans = self._plans(variants)
        candidates = [
            dataclasses.replace(
                self._candidate(number, planned.plan), parts=_parts(number, planned.plan)
            )
            for number, planned in enumerate(plans)
        ]
        run_s = self._run_s or predicted(variants[0])
        turns, policy = _schedule(seconds, run_s, self._threads)
        order = [*range(len(candidates))]
        sequence = [n for turn in range(turns) for n in (order[::-1] if turn % 2 else order)]
        code = self._code(plans)
        floors = [self._floors(*pair) for pair in zip(variants, plans, strict=True)]
        request = MeasureRequest(
            (code,),
            tuple(candidates[n] for n in sequence),
            policy,
            floors_ns=tuple(floors[n] for n in sequence),
        )
        return _Prepared(plans, sequence, request)

    def _floors(self, variant: Variant, planned: _Planned) -> tuple[int, ...]:
        """Return lower bounds of times, in nanoseconds. The first is for a run of the variant, the
        others are for each of its calls."""
        each = [self._floor(variant.choices[call.task]) for call in planned.plan.calls]
        groups = map(len, planned.plan.parts(""))
        # It is not known how the work of a call divides among several launches.
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
        """Return the library that contains an entry for each plan, and all their kernels."""
        entries = [
            planned.plan.measured_entry(self._target, _entry_name(number))
            for number, planned in enumerate(plans)
        ]
        symbols = set().union(*(planned.plan.symbols for planned in plans))
        exports = (*map(_entry_name, range(len(plans))), *sorted(symbols))
        objects = dict.fromkeys(content for planned in plans for content in planned.objects)
        linked = self._target.backend.library([*entries, *objects], exports, self._target)
        return CodeObject(self._blobs.put(linked), self._target.backend.library_kind)

    def _answers(self, requests: Sequence[MeasureRequest]) -> list[MeasureResult]:
        """Return the results of the requests, which are measured in parallel."""
        if len(requests) == 1:
            return [self._answer(requests[0])]
        with ThreadPoolExecutor(len(requests)) as pool:
            return [*pool.map(self._answer, requests)]

    def _answer(self, request: MeasureRequest) -> MeasureResult:
        for _ in range(_FAULTS):
            begin = time.monotonic()
            answer = measure_by(self._clock, self._runner, request, self._blobs)
            if self.devices is None:  # This machine measured.
                answer = dataclasses.replace(answer, device="")
            if answer.fault is None:
                ran = [
                    len(result.samples_ns)
                    for result in answer.results
                    if result.status is Status.OK
                ]
                if ran and len(ran) == len(answer.results):
                    runs = sum(ran) + len(ran) * (1 + request.policy.warmup)
                    self._run_s = (answer.run_s or time.monotonic() - begin) / runs
                break
            if answer.blame is Blame.LIBRARY:
                break  # Another attempt would fail in the same way.
        return answer


@dataclasses.dataclass(frozen=True, slots=True)
class _Planned:
    """The memory plan of a variant, and the object files that define its kernels."""

    plan: Plan
    objects: Sequence[bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class _Prepared:
    """A request to compare variants. `sequence` maps each candidate of the request to the number of
    its variant."""

    plans: Sequence[_Planned]
    sequence: Sequence[int]
    request: MeasureRequest

    def outcomes(self, answers: Sequence[MeasureResult]) -> list[Outcome]:
        """Return the outcome of each variant, merged from the results of all devices."""
        turns: list[list[CandidateResult]] = [[] for _ in self.plans]
        for answer in answers:
            if answer.fault is None:
                for number, result in zip(self.sequence, answer.results, strict=True):
                    turns[number].append(result)
        if not any(turns):
            reason = f"no device could measure: {answers[0].fault} ({answers[0].message})"
            return [FailedVariant(reason) for _ in self.plans]
        devices = ",".join(
            sorted({answer.device for answer in answers if answer.fault is None} - {""})
        )
        each = zip(self.plans, turns, strict=True)
        return [_outcome(planned.plan, mine, devices) for planned, mine in each]


def _outcome(plan: Plan, turns: Sequence[CandidateResult], device: str) -> Outcome:
    for turn in turns:
        if turn.status is not Status.OK:
            return FailedVariant(f"the model {turn.status}: {turn.message}")
    parts = iter(
        [
            _joined(each)
            for each in zip(*(turn_result.parts_ns for turn_result in turns), strict=True)
        ]
    )
    outcome = []
    for call, group in zip(plan.calls, plan.parts(""), strict=True):
        launches = itertools.islice(parts, len(group))
        samples = tuple(map(sum, zip(*launches, strict=True)))
        outcome.append(CallTimes(call, samples, device))
    return outcome


def _where_any_ran(contests: list[list[Outcome]]) -> list[list[Outcome]]:
    """Return `contests` unchanged; raise ComparisonError if no variant in them ran."""
    failed = [
        outcome
        for outcomes in contests
        for outcome in outcomes
        if isinstance(outcome, FailedVariant)
    ]
    if len(failed) == sum(map(len, contests)):
        raise ComparisonError(failed[0].reason)
    return contests


def compared(
    comparison: Comparison, default: Variant, in_use: Variant, variant: Variant, listener: Listener
) -> Race | None:
    """Race the default, the variant `in_use` (which may be the default) and a new variant, and
    return the result; None, after a warning, if the variants cannot be measured."""
    before = [default] if in_use is default else [default, in_use]
    try:
        outcomes = comparison.by_call([*before, variant], comparison.race_s)
        times = [_times(outcome) for outcome in outcomes]
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
    """Return the times of a variant's calls. Raises ComparisonError if the variant failed."""
    if isinstance(outcome, FailedVariant):
        raise ComparisonError(outcome.reason)
    return outcome


def _runs(calls: Sequence[CallTimes]) -> tuple[int, ...]:
    """Return the nanoseconds of each run of a model, as the sum over its calls."""
    each = ([times.call.runs * ns for ns in times.samples_ns] for times in calls)
    return tuple(map(sum, zip(*each, strict=True)))


def _undisturbed_halves(calls: Sequence[CallTimes]) -> tuple[float, float]:
    """Return an estimate of the nanoseconds of an undisturbed run, from the first half of the runs
    and from the second.

    The estimate is the sum over the calls, because hardly any run of a large model is undisturbed
    as a whole, but many executions of a single call are.
    """

    def of_runs(some: slice) -> float:
        return sum(times.call.runs * fast_quartile_mean(times.samples_ns[some]) for times in calls)

    middle = min(len(times.samples_ns) for times in calls) // 2
    return of_runs(slice(middle)), of_runs(slice(middle, None))


def race_cost(comparison: Comparison, variant: Variant) -> float:
    """Return the approximate seconds that `compared` takes to race the variant."""
    return comparison.racers * comparison.cost(variant, comparison.race_s) + _LINK_S


def total(choice: ScheduledTask) -> float:
    """Return the seconds of all calls of a kernel in a run of the model, measured or predicted."""
    return choice.seconds


def predicted(variant: Variant) -> float:
    """Return the predicted seconds of a run of the model: the sum over its kernels."""
    return sum(map(total, variant.choices.values()))


def _schedule(seconds: float, run_s: float, threads: int) -> tuple[int, TimingPolicy]:
    """Plan a measurement that takes about `seconds`, of a model whose run takes `run_s`. Return the
    number of turns into which the runs are divided, and the timing policy of each turn. The first
    run of a turn is not timed; in a turn with many runs, the second run is not timed either."""
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
    """Return the symbol of the entry of variant `number` in the library."""
    return f"variant_{number}"


def _parts(number: int, planned: Plan) -> tuple[Launch, ...]:
    return tuple(itertools.chain.from_iterable(planned.parts(_entry_name(number))))


def _joined(runs: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(itertools.chain.from_iterable(runs))
