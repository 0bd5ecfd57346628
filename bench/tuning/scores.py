"""How good a ranking of measured candidates is."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

import numpy as np

from bench.tuning.corpus import Known
from farrier.space.space import Floats

GOOD = 1.2  # times the best known: candidates that a search spends its trials on
DIFFERS = 0.02  # pairs that differ by less say nothing, nor those within twice the noise
MOST = 400  # candidates whose pairs are compared
SAMPLE = 64  # candidates that a top-k score chooses from
DRAWS = 50  # samples that it is the mean of


@dataclasses.dataclass(frozen=True, slots=True)
class Scores:
    """Of one task. `pairs_random` and `pairs_good` are the shares of pairs in the right order, None
    where there are no pairs; `top1` and `top5` what the best of a sample takes over what the best
    of the ranking's first ones takes; `regret` what its first choice takes beyond the best
    known."""

    pairs_random: float | None
    pairs_good: float | None
    top1: float
    top5: float
    regret: float


def scores(known: Known, predicted: Floats) -> Scores:
    """`predicted` [n] are seconds, or anything that rises with them, of `known.rows`."""
    seconds = known.seconds
    margin = max(DIFFERS, 2 * known.noise)
    good = seconds <= GOOD * known.best_s
    rng = np.random.default_rng(0)
    sample = known.sample
    tops: tuple[list[float], list[float]] = [], []
    for _ in range(DRAWS):
        drawn = rng.choice(sample, min(SAMPLE, len(sample)), replace=False)
        ranked = drawn[np.argsort(predicted[drawn], kind="stable")]
        best = seconds[drawn].min()
        for found, count in zip(tops, (1, 5), strict=True):
            found.append(float(best / seconds[ranked[:count]].min()))
    first = int(np.argmin(predicted))
    return Scores(
        pairwise(predicted[known.is_random], seconds[known.is_random], margin),
        pairwise(predicted[good], seconds[good], margin),
        statistics.mean(tops[0]),
        statistics.mean(tops[1]),
        float(seconds[first] / known.best_s - 1),
    )


def pairwise(predicted: Floats, seconds: Floats, margin: float) -> float | None:
    """The share of pairs that `predicted` puts in the order of `seconds`, of those that differ by
    more than `margin`, relative; a tie counts half. None where there is no such pair."""
    if len(seconds) > MOST:
        kept = np.random.default_rng(0).choice(len(seconds), MOST, replace=False)
        predicted, seconds = predicted[kept], seconds[kept]
    order = np.argsort(seconds, kind="stable")
    predicted, seconds = predicted[order], seconds[order]
    slower = seconds[None, :] > seconds[:, None] * (1 + margin)
    if not slower.any():
        return None
    right = predicted[None, :] > predicted[:, None]
    tied = predicted[None, :] == predicted[:, None]
    return float((right[slower].sum() + 0.5 * tied[slower].sum()) / slower.sum())


@dataclasses.dataclass(frozen=True, slots=True)
class Mean:
    """Over tasks: arithmetic means of shares and scores, the geometric mean of what a first choice
    takes, less one, and the worst."""

    pairs_random: float
    pairs_good: float
    top1: float
    top5: float
    regret: float
    worst: float


def mean(found: Sequence[Scores]) -> Mean:
    def of(values: Sequence[float | None]) -> float:
        said = [value for value in values if value is not None]
        return statistics.mean(said) if said else float("nan")

    return Mean(
        of([one.pairs_random for one in found]),
        of([one.pairs_good for one in found]),
        of([one.top1 for one in found]),
        of([one.top5 for one in found]),
        statistics.geometric_mean([1 + one.regret for one in found]) - 1,
        max(one.regret for one in found),
    )
