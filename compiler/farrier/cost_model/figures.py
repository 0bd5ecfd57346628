"""How a model does on tasks that it has not seen, beside others on the same candidates."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from farrier.cost_model.scores import Floats, pairwise, regret, top

if TYPE_CHECKING:
    from farrier.cost_model.samples import Samples

_DIFFERS = 0.05  # pairs of candidates that differ by less say nothing
_LEAD = 0.005  # of the pairs, that a better model puts in order beyond the other's
_LOSS = 0.05  # of the best of five, that it may lose by: few candidates decide these


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """Over tasks: the mean share of pairs of candidates that are put in order; the geometric mean
    of what the first choice takes over the best known, less one; and the mean of the best over the
    best of the first five."""

    pairs: float
    regret: float
    top5: float

    def leads(self, other: Figures) -> bool:
        """Whether it is better: more pairs in order, and its first choices about as good. What the
        very first takes is left to chance too much to decide."""
        return self.pairs > other.pairs + _LEAD and self.holds_with(other)

    def holds_with(self, other: Figures) -> bool:
        """Whether it is about as good, or better."""
        return self.pairs > other.pairs - _LEAD and self.top5 > other.top5 - _LOSS

    def __str__(self) -> str:
        return f"{self.pairs:.1%} of the pairs in order, regret {self.regret:.1%}"


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
