"""Searches on what was measured: the space of a task shrinks to the rows whose times are known, so
that a search of any kind runs in seconds, and as often as one likes."""

from __future__ import annotations

import numpy as np

from bench.tuning.corpus import BATCH, Known
from farrier.cost_model import CostModel
from farrier.schedule_search.evolution import EvolutionarySearch
from farrier.schedule_search.trial import Trial
from farrier.space.space import Floats
from farrier_device.measurement import CandidateResult, Status

DRAWS = 200  # random searches, whose mean is shown


def searched(known: Known, trials: int, model: CostModel, seed: int = 0) -> Floats:
    """What the tuner's search has after each trial, [trials]: the seconds of its best over those of
    the best known. `model` learns, and may know something before."""
    space = known.space.only(known.rows)
    times = {row.tobytes(): s for row, s in zip(known.rows, known.seconds, strict=True)}
    search = EvolutionarySearch(known.layer.name, space, model, seed)
    seconds: list[float] = []
    while len(seconds) < trials:
        batch = search.propose(min(BATCH, trials - len(seconds)))
        if not batch:
            break
        found = [times[space.row(decisions).tobytes()] for decisions in batch]
        seconds += found
        search.update(
            Trial(decisions, CandidateResult(Status.OK, (max(1, round(s * 1e9)),)))
            for decisions, s in zip(batch, found, strict=True)
        )
        model.fit()
    return _best_so_far(np.array(seconds), trials) / known.best_s


def drawn(known: Known, trials: int) -> Floats:
    """The same of a random search: the mean of many."""
    rng = np.random.default_rng(0)
    pool = known.seconds[known.sample]
    curves = [_best_so_far(rng.permutation(pool)[:trials], trials) for _ in range(DRAWS)]
    mean: Floats = np.mean(curves, axis=0)
    return mean / known.best_s


def trials_to(curve: Floats, ratio: float) -> int | None:
    """The trials after which the best takes at most `ratio` times the best known; None if never."""
    reached = np.flatnonzero(curve <= ratio)
    return int(reached[0]) + 1 if len(reached) else None


def _best_so_far(seconds: Floats, trials: int) -> Floats:
    """The running minimum, [trials]; a space that is exhausted earlier keeps its last."""
    found = np.minimum.accumulate(seconds)
    return np.concatenate([found, np.full(trials - len(found), found[-1])])
