"""The results of all runs of a measurement, as rows of a table, stored as JSON for later
simulations."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.scaling import quality
from bench.scaling.measured import Figures, Run, Setting
from farrier_device import codec

# The share of one device's gain that counts as its quality, because the last of it is noise.
_EQUAL = 0.9


@dataclasses.dataclass(frozen=True, slots=True)
class Row(Figures):
    """The result of a run. `curve` is (seconds, ms of the model); `reached_s` is the time to reach
    the final quality of the run with one device; `ended` is true if the search finished before the
    time limit."""

    curve: tuple[tuple[float, float], ...]
    reached_s: float | None
    ended: bool = False

    @property
    def rate(self) -> float:
        """The trials per second."""
        return self.trials / self.elapsed_s

    @property
    def others(self) -> float:
        """The mean number of cores that other processes of the machine used."""
        return max(0.0, self.costs.others_s) / self.elapsed_s

    @property
    def core_s(self) -> float:
        """The core-seconds of all of the worker's processes per trial."""
        costs = self.costs
        return (costs.supervisor_s + costs.jobs_s + costs.builders_s) / max(self.trials, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Measurement:
    """All runs, by number of devices."""

    measured_at: str
    model: str
    candidate_s: float
    invented: bool
    cores: int  # of the machine
    rows: tuple[Row, ...]

    def row(self, devices: int) -> Row | None:
        """Return the result of the run with that number of devices, or None."""
        return next((row for row in self.rows if row.devices == devices), None)

    def speed_up(self, row: Row) -> float | None:
        """Return the ratio of a run's trials to those of one device in the same time, or None
        without a run of one device."""
        single = self.row(1)
        return None if single is None else row.rate / single.rate

    def time_share(self, row: Row) -> float | None:
        """Return the time in which a run reached the final quality of one device, relative to that
        device's time; None if the run never reached it."""
        single = self.row(1)
        if single is None or row.reached_s is None or not single.reached_s:
            return None
        return row.reached_s / single.reached_s

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Measurement:
        """Read a measurement from a JSON file. Raises OSError, and ValueError for a file of other
        content."""
        return codec.loads(cls, path.read_text())


def summarized(setting: Setting, runs: Sequence[Run], measured_at: str) -> Measurement:
    """Return the results of runs with comparable qualities: a task that a run has not measured
    counts with the time of its default schedule in the fastest of the runs."""
    start_us: dict[str, float] = {}
    for run in runs:
        for task, us in quality.defaults_us(run.tasks, run.measured).items():
            start_us[task] = min(us, start_us.get(task, us))
    curves = [_curve(run, start_us) for run in runs]
    ones = [curve for run, curve in zip(runs, curves, strict=True) if run.devices == 1]
    goal_ms = equal_ms(ones[0]) if ones else None
    return Measurement(
        measured_at=measured_at,
        model=setting.name,
        candidate_s=setting.candidate_s,
        invented=setting.invented,
        cores=len(os.sched_getaffinity(0)),
        rows=tuple(
            Row(
                **_figures(run),
                ended=run.ended,
                curve=tuple(curve),
                reached_s=None if goal_ms is None else quality.reached_s(curve, goal_ms),
            )
            for run, curve in zip(runs, curves, strict=True)
        ),
    )


def equal_ms(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the latency, in ms, that counts as the final quality of one device, from its curve;
    None if tuning on it gained nothing."""
    first, last = points[0][1], points[-1][1]
    return first - _EQUAL * (first - last) if last < first else None


def _curve(run: Run, start_us: Mapping[str, float]) -> Sequence[tuple[float, float]]:
    points = quality.curve(run.tasks, run.measured, start_us, run.unix_begin)
    return [point for point in points if point[0] <= run.elapsed_s]


def _figures(run: Run) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(Figures)]
    return {name: getattr(run, name) for name in names}
