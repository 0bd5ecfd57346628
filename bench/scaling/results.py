"""The results of all runs of a measurement: rows of a table, stored as JSON for the simulation."""

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
    """One run. The curve is (seconds, milliseconds of the model), `reached_s` when it reached the
    quality of one device; `ended` is as in `Run`."""

    curve: tuple[tuple[float, float], ...]
    reached_s: float | None
    ended: bool = False

    @property
    def rate(self) -> float:
        """The trials per second."""
        return self.trials / self.elapsed_s

    @property
    def others(self) -> float:
        """Cores that other processes of the machine took."""
        return max(0.0, self.costs.others_s) / self.elapsed_s

    @property
    def core_s(self) -> float:
        """Core-seconds of all processes of the worker for a trial."""
        costs = self.costs
        return (costs.supervisor_s + costs.jobs_s + costs.builders_s) / max(self.trials, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Measurement:
    """All runs, by the number of their devices."""

    measured_at: str
    model: str
    candidate_s: float
    invented: bool
    cores: int  # of the machine
    rows: tuple[Row, ...]

    def row(self, devices: int) -> Row | None:
        """Return the run with that number of devices, or None."""
        return next((row for row in self.rows if row.devices == devices), None)

    def speed_up(self, row: Row) -> float | None:
        """Return its trials over those of one device in the same time, or None without such a
        run."""
        single = self.row(1)
        return None if single is None else row.rate / single.rate

    def time_share(self, row: Row) -> float | None:
        """Return the time in which a run reached the quality of one device, over that device's
        time; None if it never did."""
        single = self.row(1)
        if single is None or row.reached_s is None or not single.reached_s:
            return None
        return row.reached_s / single.reached_s

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Measurement:
        """Raises OSError, and ValueError on a file that is none."""
        return codec.loads(cls, path.read_text())


def summarized(setting: Setting, runs: Sequence[Run], measured_at: str) -> Measurement:
    """Return the runs on one scale of quality: a task that a run has not measured counts with the
    time of its default schedule in the fastest of the runs."""
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
    """Return the latency, in ms, that counts as the quality of one device; None if tuning on it
    gained nothing."""
    first, last = points[0][1], points[-1][1]
    return first - _EQUAL * (first - last) if last < first else None


def _curve(run: Run, start_us: Mapping[str, float]) -> Sequence[tuple[float, float]]:
    points = quality.curve(run.tasks, run.measured, start_us, run.unix_begin)
    return [point for point in points if point[0] <= run.elapsed_s]


def _figures(run: Run) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(Figures)]
    return {name: getattr(run, name) for name in names}
