"""Which task to spend the next batch of trials on.

The expected gain of a batch is the task's share of the model's latency times the relative
improvement to expect: what its last batches brought, or, while little is known, a share of the
distance to the roofline that shrinks with every batch (after Ansor's gradient scheduler,
Zheng et al., OSDI 2020, section 6). After a batch that brought nothing, an improvement that is
less than the noise counts as none.
"""

from __future__ import annotations

import dataclasses
import math

WINDOW = 3  # usual batches whose improvement is averaged
OPTIMISM = 0.3  # share of the distance to the roofline that the next batch is hoped to close
UNKNOWN = 2.0  # batches that count as much as one in flight, whose results are to come
CONVERGED = 0.001  # of the model's latency: an expected gain not worth a batch
PATIENCE = 4  # batches without improvement before a task rests


@dataclasses.dataclass(slots=True)
class _State:
    weight: int
    best: float  # seconds, measured or predicted
    bound: float  # seconds that no schedule can beat
    batches: float = 0.0
    in_flight: float = 0.0  # batches that are being measured
    measured: bool = False
    noise: float = 0.0  # relative, of what is measured
    barren: float = 0.0  # batches in a row that brought nothing
    exhausted: bool = False
    # Of each batch: what it brought, relative, and which part it was of a usual one
    gains: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    @property
    def is_tried(self) -> bool:
        return self.batches + self.in_flight > 0

    def expected(self, unknown: float = 1.0) -> float:
        """Seconds that the next batch should save, beside those in flight: of what a task has to
        give they take their part first, each as much as `unknown` batches that are measured."""
        if self.exhausted or self.barren >= PATIENCE:
            return 0.0
        known = 1 + self.batches + unknown * self.in_flight
        hope = OPTIMISM * (1.0 - self.bound / self.best) / known
        gain = max(hope, self._recent_gain() / (1 + unknown * self.in_flight))
        if self.barren >= 1 and gain < self.noise:  # it would not be seen
            return 0.0
        return self.weight * self.best * gain

    def _recent_gain(self) -> float:
        """What the last batches brought, relative, for each usual one, of which small ones are
        parts."""
        brought = tried = 0.0
        for gain, part in reversed(self.gains):
            if tried >= WINDOW:
                break
            brought += gain
            tried += part
        return brought / tried if tried else 0.0


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
        """The task to measure next; None where no batch is worth its time. Of those that are worth
        it, one with batches in flight waits for others: what they find may change what it tries."""
        least = CONVERGED * self.latency
        worth = [
            index
            for index, task in enumerate(self._tasks)
            if task.expected() > 0 and (task.expected() >= least or not task.is_tried)
        ]
        return max(worth, key=lambda one: self._tasks[one].expected(UNKNOWN), default=None)

    def begin(self, index: int, part: float = 1.0) -> None:
        """A batch of the task is in flight, which is some part of a usual one."""
        self._tasks[index].in_flight += part

    def end(self, index: int, part: float = 1.0) -> None:
        """A batch of the task is in flight no more, whatever became of it."""
        self._tasks[index].in_flight -= part

    def update(self, index: int, best: float, part: float = 1.0, noise: float = 0.0) -> None:
        """A batch of the task was measured; `best` is the best so far (infinity: none ran), and
        `noise` what its measurements err by, relative.

        The first measurement replaces the prediction, whether faster or slower.
        """
        task = self._tasks[index]
        task.batches += part
        task.noise = noise
        if not math.isfinite(best):
            task.barren += part
        elif not task.measured:
            task.measured, task.best, task.barren = True, best, 0.0
            task.bound = min(task.bound, best)
        else:
            gain = max(0.0, 1.0 - best / task.best)
            task.gains.append((gain, part))
            task.barren = 0.0 if gain > CONVERGED * part else task.barren + part
            task.best = min(task.best, best)
            task.bound = min(task.bound, best)

    def why_none(self) -> str:
        """Why `next` finds no task, in words."""
        open_tasks = [task for task in self._tasks if not task.exhausted]
        if not open_tasks:
            return "every candidate is measured"
        if any(task.noise > 0 for task in open_tasks) and all(
            task.expected() == 0.0 for task in open_tasks
        ):
            return "nothing more is expected of any kernel than the noise of its measurements"
        return f"no batch is expected to bring {CONVERGED:.1%} of the model's time"

    def exhaust(self, index: int) -> None:
        """The task has no candidate left to measure."""
        self._tasks[index].exhausted = True
