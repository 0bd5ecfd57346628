"""How good a ranking of measured candidates is."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from bench.tuning.corpus import Known
from farrier.cost_model.scores import pairwise, regret, top
from farrier.space.space import Floats

GOOD = 1.2  # times the best known: candidates that a search spends its trials on
DIFFERS = 0.02  # pairs that differ by less say nothing, nor those within twice the noise


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
    seconds, sample = known.seconds, known.sample
    margin = max(DIFFERS, 2 * known.noise)
    good = seconds <= GOOD * known.best_s
    return Scores(
        pairwise(predicted[sample], seconds[sample], margin),
        pairwise(predicted[good], seconds[good], margin),
        top(predicted[sample], seconds[sample], 1),
        top(predicted[sample], seconds[sample], 5),
        regret(predicted, seconds),
    )


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
