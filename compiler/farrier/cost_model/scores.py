"""Scores of a ranking of candidates whose times are known: arrays of one task, [candidates].

`predicted` are seconds, or anything that rises with them.
"""

from __future__ import annotations

import numpy as np

from farrier.space.space import Floats

SAMPLE = 64  # The number of candidates that a top-k score chooses from.
_DRAWS = 50  # The number of samples of which it is the mean.
_MOST = 400  # The most candidates whose pairs are compared.


def pairwise(predicted: Floats, seconds: Floats, margin: float) -> float | None:
    """Return the share of pairs that `predicted` puts in the order of `seconds`, of the pairs that
    differ by more than `margin`, relative; a tie counts half. None if no pair does."""
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
    """Return the least time of a random sample over the least time of its first `count` candidates
    by rank; the mean over many samples, 1 if every sample's fastest is among these."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(_DRAWS):
        drawn = rng.choice(len(seconds), min(SAMPLE, len(seconds)), replace=False)
        first = drawn[np.argsort(predicted[drawn], kind="stable")[:count]]
        ratios.append(seconds[drawn].min() / seconds[first].min())
    return float(np.mean(ratios))


def regret(predicted: Floats, seconds: Floats) -> float:
    """Return the time of the first choice over the least time, minus one."""
    return float(seconds[np.argmin(predicted)] / seconds.min() - 1)
