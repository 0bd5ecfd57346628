"""Scores of a ranking of candidates against their measured times: arrays of one task, [candidates].

`predicted` are seconds, or any monotonic function of them.
"""

from __future__ import annotations

import numpy as np

from farrier.space.space import Floats

SAMPLE = 64  # The number of candidates that a top-k score chooses from.
_DRAWS = 50  # The number of samples of which it is the mean.
_MOST = 400  # The most candidates whose pairs are compared.


def pairwise(predicted: Floats, seconds: Floats, margin: float) -> float | None:
    """Return the fraction of pairs of candidates that `predicted` orders as `seconds` does, among
    the pairs that differ by more than the fraction `margin`; a tie counts as half. None if no pair
    differs by that much."""
    if len(seconds) > _MOST:
        kept = np.random.default_rng(0).choice(len(seconds), _MOST, replace=False)
        predicted, seconds = predicted[kept], seconds[kept]
    order = np.argsort(seconds, kind="stable")
    predicted, seconds = predicted[order], seconds[order]
    slower = seconds[None, :] > seconds[:, None] * (1 + margin)
    if not slower.any():
        return None
    right = predicted[None, :] > predicted[:, None]
    tied = predicted[None, :] == predicted[:, None]
    return float((right[slower].sum() + 0.5 * tied[slower].sum()) / slower.sum())


def top(predicted: Floats, seconds: Floats, count: int) -> float:
    """Return a score of the ranking's first places, at most 1. From a random sample of candidates,
    the `count` candidates that are ranked first are selected. The score is the best time in the
    sample divided by the best time among the selected ones, averaged over many samples."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(_DRAWS):
        drawn = rng.choice(len(seconds), min(SAMPLE, len(seconds)), replace=False)
        first = drawn[np.argsort(predicted[drawn], kind="stable")[:count]]
        ratios.append(seconds[drawn].min() / seconds[first].min())
    return float(np.mean(ratios))


def regret(predicted: Floats, seconds: Floats) -> float:
    """Return the relative loss of a prediction: the time of the candidate that it ranks first,
    divided by the best time, minus one."""
    return float(seconds[np.argmin(predicted)] / seconds.min() - 1)
