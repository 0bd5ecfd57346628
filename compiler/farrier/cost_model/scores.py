"""How good a ranking of candidates is whose times are known: arrays of one task, [candidates].

`predicted` are seconds, or anything that rises with them.
"""

from __future__ import annotations

import numpy as np

from farrier.space.space import Floats

SAMPLE = 64  # candidates that a top-k score chooses from
_DRAWS = 50  # samples that it is the mean of
_MOST = 400  # candidates whose pairs are compared


def pairwise(predicted: Floats, seconds: Floats, margin: float) -> float | None:
    """The share of pairs that `predicted` puts in the order of `seconds`, of those that differ by
    more than `margin`, relative; a tie counts half. None where there is no such pair."""
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
    """The best of a random sample over the best of its `count` that are ranked first; the mean of
    many samples, 1 where each has its best among these."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(_DRAWS):
        drawn = rng.choice(len(seconds), min(SAMPLE, len(seconds)), replace=False)
        first = drawn[np.argsort(predicted[drawn], kind="stable")[:count]]
        found.append(seconds[drawn].min() / seconds[first].min())
    return float(np.mean(found))


def regret(predicted: Floats, seconds: Floats) -> float:
    """What the first choice takes beyond the best, relative."""
    return float(seconds[np.argmin(predicted)] / seconds.min() - 1)
