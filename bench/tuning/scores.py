"""Scores for the ranking of a task's measured candidates by a model."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from bench.tuning.corpus import Known
from farrier.cost_model.scores import pairwise, regret, top
from farrier.space.space import Floats

GOOD = 1.2  # Times the best known: a search spends its trials on candidates within it.
DIFFERS = 0.02  # Pairs that differ by less, or by less than twice the noise, are left out.


@dataclasses.dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a ranking of one task. `pairs_random` and `pairs_good` are the shares of
    correctly ordered pairs, None without pairs. `top1` and `top5` are the fastest of the ranking's
    first one and first five candidates, relative to the fastest of the sample. `regret` is the
    excess time of its first candidate over the best known one."""

    pairs_random: float | None
    pairs_good: float | None
    top1: float
    top5: float
    regret: float


def scores(task: Known, predicted: Floats) -> Scores:
    """Return the scores of the ranking of `task.rows` by `predicted` [n], which are seconds or any
    monotonic function of them."""
    seconds, sample = task.seconds, task.sample
    margin = max(DIFFERS, 2 * task.noise)
    good = seconds <= GOOD * task.best_s
    return Scores(
        pairwise(predicted[sample], seconds[sample], margin),
        pairwise(predicted[good], seconds[good], margin),
        top(predicted[sample], seconds[sample], 1),
        top(predicted[sample], seconds[sample], 5),
        regret(predicted, seconds),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Mean:
    """The means of scores over tasks. Shares have arithmetic means; the first choice's time over
    the best, less one, has a geometric mean and a maximum."""

    pairs_random: float
    pairs_good: float
    top1: float
    top5: float
    regret: float
    worst: float


def mean(all_scores: Sequence[Scores]) -> Mean:
    def of(values: Sequence[float | None]) -> float:
        said = [value for value in values if value is not None]
        return statistics.mean(said) if said else float("nan")

    return Mean(
        of([score.pairs_random for score in all_scores]),
        of([score.pairs_good for score in all_scores]),
        of([score.top1 for score in all_scores]),
        of([score.top5 for score in all_scores]),
        statistics.geometric_mean([1 + score.regret for score in all_scores]) - 1,
        max(score.regret for score in all_scores),
    )
