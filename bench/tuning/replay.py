"""Replay searches on measured candidates: the schedule space of a task is reduced to the rows with
known times, so that any search takes seconds and can be repeated."""

from __future__ import annotations

import numpy as np

from bench.tuning.corpus import BATCH, Known
from farrier.cost_model import CostModel
from farrier.schedule_search.evolution import EvolutionarySearch
from farrier.schedule_search.trial import Trial
from farrier.space.space import Floats
from farrier_device.measurement import CandidateResult, Status

DRAWS = 200  # The random searches whose mean is shown.


def searched(task: Known, trials: int, model: CostModel, seed: int = 0) -> Floats:
    """Replay the tuner's search. Return after each trial the best seconds so far over the best
    known ones, [trials]. `model`, which may be pretrained, is trained during the search."""
    space = task.space.only(task.rows)
    times = {row.tobytes(): s for row, s in zip(task.rows, task.seconds, strict=True)}
    search = EvolutionarySearch(task.layer.name, space, model, seed)
    seconds: list[float] = []
    while len(seconds) < trials:
        batch = search.propose(min(BATCH, trials - len(seconds)))
        if not batch:
            break
        batch_times = [times[space.row(decisions).tobytes()] for decisions in batch]
        seconds += batch_times
        search.update(
            Trial(decisions, CandidateResult(Status.OK, (max(1, round(s * 1e9)),)))
            for decisions, s in zip(batch, batch_times, strict=True)
        )
        model.fit()
    return _best_so_far(np.array(seconds), trials) / task.best_s


def drawn(task: Known, trials: int) -> Floats:
    """Replay random search. Return after each trial the best seconds so far over the best known
    ones, [trials], as a mean over many random orders."""
    rng = np.random.default_rng(0)
    pool = task.seconds[task.sample]
    curves = [_best_so_far(rng.permutation(pool)[:trials], trials) for _ in range(DRAWS)]
    mean: Floats = np.mean(curves, axis=0)
    return mean / task.best_s


def trials_to(curve: Floats, ratio: float) -> int | None:
    """Return the number of trials after which a curve is at most `ratio`, or None if it never
    is."""
    reached = np.flatnonzero(curve <= ratio)
    return int(reached[0]) + 1 if len(reached) else None


def _best_so_far(seconds: Floats, trials: int) -> Floats:
    """Return the running minimum, extended with its last value to length `trials`."""
    minimum = np.minimum.accumulate(seconds)
    return np.concatenate([minimum, np.full(trials - len(minimum), minimum[-1])])
