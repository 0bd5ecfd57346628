"""Select the task for the next batch of trials.

The expected gain of a batch is the task's share of the model's latency times the expected relative
improvement. The latter is the improvement of the task's last batches. After only a few batches, it
is at least a fraction of the task's distance from its roofline; the fraction decreases with every
batch (after Ansor's gradient scheduler, Zheng et al., OSDI 2020, section 6). Improvements below the
noise of the measurements count as zero.
"""

from __future__ import annotations

import dataclasses
import math

WINDOW = 3  # The number of usual batches whose improvement is averaged.
# The share of the distance to the roofline that the next batch is expected to close.
OPTIMISM = 0.3
UNKNOWN = 2.0  # A batch in flight, with unknown results, counts as this number of measured batches.
# The share of the model's latency below which an expected gain is not worth a batch.
CONVERGED = 0.001
PATIENCE = 4  # The batches without improvement before a task rests.


@dataclasses.dataclass(slots=True)
class _State:
    weight: int
    best: float  # In seconds, measured or predicted.
    bound: float  # The seconds that no schedule can beat.
    batches: float = 0.0
    in_flight: float = 0.0  # The batches that are being measured.
    measured: bool = False
    noise: float = 0.0  # The relative noise of the measurements.
    barren: float = 0.0  # The batches in a row without improvement.
    exhausted: bool = False
    # For each batch its relative improvement, and its size as a share of a usual one.
    gains: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    @property
    def is_tried(self) -> bool:
        return self.batches + self.in_flight > 0

    def expected(self, unknown: float = 1.0) -> float:
        """Return the seconds that another batch of the task is expected to save. Batches in flight,
        whose results are not known yet, reduce the expectation as if each were `unknown` measured
        batches."""
        if self.exhausted or self.barren >= PATIENCE:
            return 0.0
        batches_so_far = 1 + self.batches + unknown * self.in_flight
        hope = OPTIMISM * (1.0 - self.bound / self.best) / batches_so_far
        gain = max(hope, self._recent_gain() / (1 + unknown * self.in_flight))
        if self.barren >= 1 and gain < self.noise:  # The gain would not be measurable.
            return 0.0
        return self.weight * self.best * gain

    def _recent_gain(self) -> float:
        """Return the average relative improvement per batch of usual size over the last batches;
        smaller batches count as fractions."""
        brought = tried = 0.0
        for gain, part in reversed(self.gains):
            if tried >= WINDOW:
                break
            brought += gain
            tried += part
        return brought / tried if tried else 0.0


class TaskScheduler:
    """A deterministic selection of batches by expected gain."""

    def __init__(self, weights: list[int], seconds: list[float], bounds: list[float]) -> None:
        """Initialize the tasks. `weights` are their numbers of calls in the model, `seconds` the
        time of a call as predicted or measured, and `bounds` lower bounds of that time."""
        self._tasks = [
            _State(weight, best, min(bound, best))
            for weight, best, bound in zip(weights, seconds, bounds, strict=True)
        ]

    @property
    def latency(self) -> float:
        """The model's estimated seconds: the sum over all calls of the best time so far."""
        return sum(task.weight * task.best for task in self._tasks)

    def next(self) -> int | None:
        """Return the index of the task to measure next; None if no batch is worth its time. A task
        with batches in flight has lower priority, since their results may change its next
        candidates."""
        least = CONVERGED * self.latency
        worth = [
            index
            for index, task in enumerate(self._tasks)
            if task.expected() > 0 and (task.expected() >= least or not task.is_tried)
        ]
        return max(worth, key=lambda index: self._tasks[index].expected(UNKNOWN), default=None)

    def begin(self, index: int, part: float = 1.0) -> None:
        """Count a batch of the task as in flight; `part` is its size as a fraction of a usual
        batch."""
        self._tasks[index].in_flight += part

    def end(self, index: int, part: float = 1.0) -> None:
        """Count a batch of the task as no longer in flight, whatever its result."""
        self._tasks[index].in_flight -= part

    def update(self, index: int, best: float, part: float = 1.0, noise: float = 0.0) -> None:
        """Record the results of a batch of the task.

        `best` is the best time so far (infinity if no candidate ran), and `noise` the relative
        error of its measurements. The first measurement replaces the prediction, whether it is
        faster or slower.
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
        """Return, as text, the reason why `next` returns None."""
        open_tasks = [task for task in self._tasks if not task.exhausted]
        if not open_tasks:
            return "every candidate is measured"
        if any(task.noise > 0 for task in open_tasks) and all(
            task.expected() == 0.0 for task in open_tasks
        ):
            return "nothing more is expected of any kernel than the noise of its measurements"
        return f"no batch is expected to bring {CONVERGED:.1%} of the model's time"

    def exhaust(self, index: int) -> None:
        """Mark the task as having no more candidates to measure."""
        self._tasks[index].exhausted = True
