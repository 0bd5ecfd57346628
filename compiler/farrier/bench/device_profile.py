"""Time each kernel of a model on a device, within runs of the model.

The interpreter of the model's program executes each call and launch separately, and the device
times it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from farrier.artifact.calls import CallRecord
from farrier.errors import CompilerError
from farrier_device.interpreted import InterpretedEntry
from farrier_device.program import Call, Launch


def rounds(
    code: InterpretedEntry,
    addresses: Sequence[int],
    calls: Sequence[CallRecord],
    seconds: float,
    fewest: int,
) -> tuple[list[float], list[list[float]]]:
    """Run the model and its calls in rounds, for about `seconds` and at least `fewest` rounds.
    Return the seconds of the complete model in each round, and for each call its seconds in each
    round. Raises CompilerError."""
    groups = list(grouped(calls, code.launches))
    whole: list[float] = []
    each: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while len(whole) < fewest or time.perf_counter() < end:
        begin = time.perf_counter()
        _check(code.entry(addresses, 0))
        whole.append(time.perf_counter() - begin)
        result, times = code.timed(addresses)
        _check(result)
        for samples, group in zip(each, groups, strict=True):
            parts = (sum(times[at]) / max(1, len(times[at])) for at in group)
            samples.append(sum(parts) / 1e9)
    return whole, each


def grouped(calls: Sequence[CallRecord], launches: Sequence[Call | Launch]) -> Iterator[range]:
    """Yield, for each call, the range of the indices of its launches. They are consecutive, and all
    but the first have the name of the call's function with a number appended."""
    start = 0
    for call in calls:
        end = start + 1
        while end < len(launches) and _name(launches[end]) == f"{call.function}_{end - start}":
            end += 1
        yield range(start, end)
        start = end


def _name(step: Call | Launch) -> str:
    return step.function if isinstance(step, Call) else step.kernel


def _check(code: int) -> None:
    if code:
        raise CompilerError(f"the model returned {code}")
