"""The rounds of a race: the number of runs in a round, the order of the engines, and the ratio of
two engines."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

R = TypeVar("R")

MOST_RUNS = 1 << 20  # These take a second, if a run takes a microsecond.
_SLOW_S = 0.5  # A run that takes longer is timed once to guess the runs of a round.
_FEW = 3  # Their median is the second guess.


def runs_of_a_round(run_s: Callable[[int], float], round_s: float, most: int = MOST_RUNS) -> int:
    """Return the number of runs, from 1 to `most`, that take about `round_s` seconds together.
    `run_s(count)` times `count` runs and returns their median in seconds. One run is timed first.
    An engine that is fast is then timed for a few more runs, because its first run is slower than
    later ones."""

    def runs(seconds: float) -> int:
        return max(1, min(most, int(round_s / max(seconds, 1e-9))))

    first = run_s(1)
    count = runs(first)
    return count if first > _SLOW_S else runs(run_s(min(count, _FEW)))


def turns(rounds: Sequence[Callable[[], R]]) -> Iterator[list[R]]:
    """Yield the results of turns, without end. In a turn, each function in `rounds` (one round of
    an engine) is called once; its results have the order of `rounds`. Every second turn calls the
    functions in reverse order, so that no engine always runs after the same other engine."""
    order = range(len(rounds))
    for number in itertools.count():
        results: dict[int, R] = {}
        for place in reversed(order) if number % 2 else order:
            results[place] = rounds[place]()
        yield [results[place] for place in order]


def ratio(ours: Iterable[Sequence[float]], theirs: Iterable[Sequence[float]]) -> float:
    """Return the speedup of the other engine over ours: the median over all turns of (our time /
    their time). `ours` and `theirs` contain the samples of each round; the time of a round is the
    median of its samples."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(
        statistics.median(own) / statistics.median(other) for own, other in pairs
    )
