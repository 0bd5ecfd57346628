"""Which task to spend the next batch of trials on.

The expected gain of a batch is the task's share of the model's latency times the relative
improvement to expect: what its last batches brought, or, while little is known, a share of the
distance to the roofline that shrinks with every batch (after Ansor's gradient scheduler,
Zheng et al., OSDI 2020, section 6).
"""

from __future__ import annotations

import dataclasses
import math

WINDOW = 3  # batches whose improvement is averaged
OPTIMISM = 0.3  # share of the distance to the roofline that the next batch is hoped to close
CONVERGED = 0.001  # of the model's latency: an expected gain not worth a batch
PATIENCE = 4  # batches without improvement before a task rests


@dataclasses.dataclass(slots=True)
class _State:
    weight: int
    best: float  # seconds, measured or predicted
    bound: float  # seconds that no schedule can beat
    batches: int = 0
    in_flight: int = 0  # batches that are being measured
    measured: bool = False
    barren: int = 0  # batches in a row that brought nothing
    exhausted: bool = False
    gains: list[float] = dataclasses.field(default_factory=list)  # relative, of each batch

    @property
    def expected(self) -> float:
        """Seconds that the next batch should save, beside those in flight: of what a task has to
        give they take their part first."""
        if self.exhausted or self.barren >= PATIENCE:
            return 0.0
        hope = OPTIMISM * (1.0 - self.bound / self.best) / (1 + self.batches + self.in_flight)
        recent = self.gains[-WINDOW:]
        trend = sum(recent) / len(recent) / (1 + self.in_flight) if recent else 0.0
        return self.weight * self.best * max(hope, trend)


class TaskScheduler:
    """Hands out batches by expected gain; deterministic."""

    def __init__(self, weights: list[int], seconds: list[float], bounds: list[float]) -> None:
        """Per task: how often the model calls it, the time of a call as predicted or measured,
        and a time that no schedule can beat."""
        self._tasks = [
            _State(weight, best, min(bound, best))
            for weight, best, bound in zip(weights, seconds, bounds, strict=True)
        ]

    @property
    def latency(self) -> float:
        """The model's estimated seconds: the best time known of every call, summed."""
        return sum(task.weight * task.best for task in self._tasks)

    def next(self) -> int | None:
        """The task to measure next; None where no batch is worth its time."""
        gains = [task.expected for task in self._tasks]
        index = max(range(len(gains)), key=gains.__getitem__, default=None)
        if index is None or gains[index] <= 0:
            return None
        task = self._tasks[index]
        if gains[index] < CONVERGED * self.latency and task.batches + task.in_flight:
            return None
        return index

    def begin(self, index: int) -> None:
        """A batch of the task is in flight."""
        self._tasks[index].in_flight += 1

    def end(self, index: int) -> None:
        """A batch of the task is in flight no more, whatever became of it."""
        self._tasks[index].in_flight -= 1

    def update(self, index: int, best: float) -> None:
        """A batch of the task was measured; `best` is the best so far (infinity: none ran).

        The first measurement replaces the prediction, whether faster or slower.
        """
        task = self._tasks[index]
        task.batches += 1
        if not math.isfinite(best):
            task.barren += 1
        elif not task.measured:
            task.measured, task.best, task.barren = True, best, 0
            task.bound = min(task.bound, best)
        else:
            gain = max(0.0, 1.0 - best / task.best)
            task.gains.append(gain)
            task.barren = 0 if gain > CONVERGED else task.barren + 1
            task.best = min(task.best, best)
            task.bound = min(task.bound, best)

    def exhaust(self, index: int) -> None:
        """The task has no candidate left to measure."""
        self._tasks[index].exhausted = True
