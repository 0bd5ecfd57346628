"""How a model does on tasks that it has not seen, beside others on the same candidates."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from farrier.cost_model.scores import pairwise, regret, top
from farrier.records.outcome import Figures
from farrier.space.space import Floats

if TYPE_CHECKING:
    from farrier.cost_model.samples import Samples

_DIFFERS = 0.05  # pairs of candidates that differ by less say nothing


def figures(predict: Callable[[Samples], Floats], held_out: Sequence[Samples]) -> Figures | None:
    """Of the ranking that `predict` gives, seconds or what rises with them. None where the
    candidates that ran, of each task, do not differ."""
    pairs, regrets, tops = [], [], []
    for samples in held_out:
        ran = np.isfinite(samples.seconds)
        seconds = samples.seconds[ran]
        predicted = predict(samples)[ran]
        share = pairwise(predicted, seconds, _DIFFERS) if len(seconds) else None
        if share is not None:
            pairs.append(share)
            regrets.append(regret(predicted, seconds))
            tops.append(top(predicted, seconds, 5))
    if not pairs:
        return None
    typical = statistics.geometric_mean(1 + one for one in regrets) - 1
    return Figures(statistics.mean(pairs), typical, statistics.mean(tops))
