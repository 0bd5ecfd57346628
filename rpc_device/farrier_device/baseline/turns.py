"""The turns of a race: how many runs are a round, who goes first, and the ratio of two entrants."""

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
    """Return how many runs take about `round_s` seconds, at least one. `run_s(count)` returns the
    median of that many runs, in seconds. The first run of an engine is slower than later ones, so a
    fast engine is timed twice."""

    def runs(seconds: float) -> int:
        return max(1, min(most, int(round_s / max(seconds, 1e-9))))

    first = run_s(1)
    count = runs(first)
    return count if first > _SLOW_S else runs(run_s(min(count, _FEW)))


def turns(rounds: Sequence[Callable[[], R]]) -> Iterator[list[R]]:
    """Yield turn after turn, without end: the result of a round of each entrant, in their order.
    Every other turn runs backwards: whoever follows the heaviest engine is not always the same."""
    order = range(len(rounds))
    for number in itertools.count():
        results: dict[int, R] = {}
        for place in reversed(order) if number % 2 else order:
            results[place] = rounds[place]()
        yield [results[place] for place in order]


def ratio(ours: Iterable[Sequence[float]], theirs: Iterable[Sequence[float]]) -> float:
    """Return the median of the ratios of the rounds of one turn, whose times are the medians of
    their samples: how often faster they are than we."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(
        statistics.median(own) / statistics.median(other) for own, other in pairs
    )
