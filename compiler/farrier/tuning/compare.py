"""Times variants of a model side by side on the device, as a whole or kernel by kernel.

Kernels measured alone misrank what weighs on the caches; what counts is how a model runs. All
variants are in one library, so one request measures them in turns, and what happens to the machine
meanwhile happens to all of them. Times do not depend on numbers, so memory stays zero, and no
parameters are packed or sent; sizes that values decide are the typical ones.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Iterable, Sequence

from farrier.artifact.calls import CallRecord
from farrier.assemble import ENTRY, Plan, plan
from farrier.choose import Choice
from farrier.codegen import compile_functions, interface, link, support_object
from farrier.codegen.support import SYMBOLS
from farrier.ir.dim import typical
from farrier.ir.loop import Function
from farrier.measure import Blobs, Runner, sizes_argument
from farrier.progress import Listener, Warned
from farrier.records.record import pairs
from farrier.target import Target
from farrier.tuning.variant import Variant
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

_TURNS = 6  # of each variant, every other one backwards
_MIN_REPEATS = 3  # a turn
_MAX_REPEATS = 100
_RACE_S = 1.0
_TIMEOUT_S = 120.0
_FAULTS = 3  # attempts at a device that is lost


@dataclasses.dataclass(frozen=True, slots=True)
class CallTimes:
    """How long one call of a variant took: nanoseconds of each run of the model."""

    call: CallRecord
    samples_ns: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Race:
    """Nanoseconds of every run of a model with defaults only, and of a variant of it."""

    default_ns: tuple[int, ...]
    variant_ns: tuple[int, ...]

    @property
    def default_ms(self) -> float:
        return statistics.median(self.default_ns) / 1e6

    @property
    def is_won(self) -> bool:
        """Whether the variant is the faster one where nothing disturbs them."""
        return undisturbed(self.variant_ns) < undisturbed(self.default_ns)


def mean_samples(calls: Sequence[Sequence[int]], count: int | None = None) -> tuple[int, ...]:
    """Samples of several calls as those of one, the fastest first: the means of their fastest, of
    their second fastest, and so on; or sums over `count`, where a call is a part of something. A
    disturbance that some calls of a run had and others had not then spoils none of the fastest."""
    ranked = zip(*map(sorted, calls), strict=True)
    return tuple(round(sum(place) / (count or len(calls))) for place in ranked)


class ComparisonError(Exception):
    """The variants could not be measured; the message says why."""


class Comparison:
    """Measures variants of one model. Kernels that variants share are compiled once."""

    def __init__(self, target: Target, threads: int, runner: Runner, blobs: Blobs) -> None:
        self._target = target
        self._threads = threads
        self._runner = runner
        self._blobs = blobs
        self._functions: dict[tuple[str, tuple[tuple[str, int], ...]], Function] = {}
        self._objects: list[bytes] = []

    def whole(self, variants: Sequence[Variant], seconds: float) -> list[tuple[int, ...]]:
        """Nanoseconds of every run of each variant, `seconds` long. Raises ComparisonError where no
        device could measure, or a variant fails."""
        plans = self._plans(variants)
        candidates = [self._candidate(number, planned) for number, planned in enumerate(plans)]
        return [samples for samples, _ in self._measure(plans, candidates, seconds)]

    def by_call(self, variants: Sequence[Variant], seconds: float) -> list[list[CallTimes]]:
        """The calls of each variant, each timed where it stands. Raises as `whole` does."""
        plans = self._plans(variants)
        candidates = [
            dataclasses.replace(self._candidate(number, planned), parts=_parts(planned))
            for number, planned in enumerate(plans)
        ]
        return [
            [CallTimes(*one) for one in zip(planned.calls, parts, strict=True)]
            for planned, (_, parts) in zip(
                plans, self._measure(plans, candidates, seconds), strict=True
            )
        ]

    def forget(self) -> None:
        """Drops the kernels compiled so far, where the next variants need others."""
        self._functions.clear()
        self._objects.clear()

    def _candidate(self, number: int, planned: Plan) -> Candidate:
        """The whole model at its typical sizes, on memory of its own."""
        sizes = [*planned.inputs, *planned.outputs]
        sizes += [planned.arena.nbytes, typical(planned.memory.workspace_bytes)]
        arguments = [Argument(Role.SCRATCH, nbytes) for nbytes in sizes]
        arguments += sizes_argument(planned.sizes, self._blobs)
        return Candidate(f"{ENTRY}_{number}", tuple(arguments))

    def _plans(self, variants: Sequence[Variant]) -> list[Plan]:
        """The variants with their memory placed, and what they need compiled."""
        known = len(self._functions)
        functions = [
            {key: self._function(choice) for key, choice in variant.choices.items()}
            for variant in variants
        ]
        self._objects += compile_functions([*self._functions.values()][known:], self._target)
        interfaces = [{key: interface(one) for key, one in made.items()} for made in functions]
        return [
            plan(variant.program, made, self._target, self._threads)
            for variant, made in zip(variants, interfaces, strict=True)
        ]

    def _function(self, choice: Choice) -> Function:
        """The scheduled kernel, under a name that no other schedule of its task has."""
        key = (choice.task.key, pairs(choice.decisions))
        if key not in self._functions:
            name = f"{choice.task.symbol}_{len(self._functions)}"
            self._functions[key] = dataclasses.replace(choice.function(), name=name)
        return self._functions[key]

    def _measure(
        self, plans: Sequence[Plan], candidates: Sequence[Candidate], seconds: float
    ) -> list[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
        """Samples of each candidate, and of each of its parts, over all turns."""
        entries = [
            plan.measured_entry(self._target, candidates[number].symbol)
            for number, plan in enumerate(plans)
        ]
        symbols = set().union(*(plan.symbols for plan in plans))
        exports = (*SYMBOLS, *(one.symbol for one in candidates), *sorted(symbols))
        library = link([*entries, *self._objects, support_object(self._target)], exports)
        order = [*range(len(candidates))]
        turns = [n for turn in range(_TURNS) for n in (order[::-1] if turn % 2 else order)]
        policy = TimingPolicy(
            threads=self._threads,
            warmup=1,
            min_repeats=_MIN_REPEATS,
            max_repeats=_MAX_REPEATS,
            min_time_s=seconds / _TURNS,
            timeout_s=_TIMEOUT_S,
        )
        request = MeasureRequest(
            self._blobs.put(library), tuple(candidates[n] for n in turns), policy
        )
        results = self._run(request)
        measured = []
        for number in order:
            mine = [one for n, one in zip(turns, results, strict=True) if n == number]
            parts = zip(*(one.parts_ns for one in mine), strict=True)
            measured.append((_joined(one.samples_ns for one in mine), [*map(_joined, parts)]))
        return measured

    def _run(self, request: MeasureRequest) -> Sequence[CandidateResult]:
        for _ in range(_FAULTS):
            answer = self._runner.measure(request, self._blobs)
            if answer.fault is None:
                failed = [one for one in answer.results if one.status is not Status.OK]
                if failed:
                    raise ComparisonError(f"the model {failed[0].status}: {failed[0].message}")
                return answer.results
        raise ComparisonError(f"no device could measure: {answer.fault} ({answer.message})")


def compared(
    comparison: Comparison, default: Variant, variant: Variant, listener: Listener
) -> Race | None:
    """The two side by side; None, with a warning, where they cannot be measured."""
    try:
        return Race(*comparison.whole([default, variant], _RACE_S))
    except ComparisonError as error:
        listener(Warned(f"nothing shows that tuning brought anything: {error}"))
        return None


def _parts(planned: Plan) -> tuple[Part, ...]:
    return tuple(
        Part(call.function, tuple((one.position, one.offset) for one in call.arguments))
        for call in planned.calls
    )


def _joined(runs: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(itertools.chain.from_iterable(runs))
