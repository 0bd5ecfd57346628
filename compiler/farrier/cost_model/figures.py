"""Evaluate a model's ranking on tasks that it was not trained on."""

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

_DIFFERS = 0.05  # Pairs of candidates that differ by less than this share are not compared.


def figures(predict: Callable[[Samples], Floats], held_out: Sequence[Samples]) -> Figures | None:
    """Return the quality of the ranking by `predict`, which returns seconds or any monotonic
    function of them, on held-out tasks. None if in no task the candidates that ran differ."""
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
    typical = statistics.geometric_mean(1 + relative for relative in regrets) - 1
    return Figures(statistics.mean(pairs), typical, statistics.mean(tops))
