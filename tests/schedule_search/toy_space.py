"""A space whose true times are known, and a measurer that reads them off."""

from __future__ import annotations

import contextlib

import numpy as np

from farrier.records import RuleId
from farrier.space import Estimate, Knob, Space
from farrier_device.measurement import CandidateResult, Status

TILES = tuple(range(1, 33))


class ToySchedule:
    """A schedule that has a trace, as real ones do."""

    def __init__(self, trace):
        self.trace = trace


def valley(columns, best_x, best_y, scale):
    """Seconds: a valley with its floor at (best_x, best_y), with ripples."""
    x, y = columns["x"].astype(float), columns["y"].astype(float)
    slope = 1 + 0.1 * abs(x - best_x) + 0.05 * abs(y - best_y) + 0.2 * (x % 2) + 0.1 * columns["z"]
    return scale * slope


def make_space(best=(9, 20), scale=1e-4, skew=1.0, zs=(0, 1), version=1):
    """A space of 2,048 rows (less its constraint); the analytic model believes the floor of the
    valley to be where `skew` puts it."""

    def estimate(columns):
        seconds = valley(columns, best[0] * skew, best[1] * skew, scale)
        return Estimate(seconds, {"compute": np.full(len(seconds), scale * 0.9)})

    return Space(
        RuleId("toy", version),
        (Knob("x", TILES), Knob("y", TILES), Knob("z", zs)),
        lambda c: c["x"] * c["y"] <= 512,
        estimate,
        lambda d: ToySchedule(f"toy {sorted(d.items())}"),
    )


class ToyMeasurer:
    """Measures toy spaces: `floors` says where each task is truly fast; some candidates fail."""

    def __init__(self, floors, scale=1e-4, failing=lambda d: False):
        self.floors = floors
        self.scale = scale
        self.failing = failing
        self.measured = []

    def seconds(self, task, decisions):
        columns = {name: np.array([value]) for name, value in decisions.items()}
        return float(valley(columns, *self.floors[task], self.scale)[0])

    devices = None
    candidate_s = 0.0
    aside = staticmethod(contextlib.nullcontext)

    def measure(self, task, space, batch, called_off=None):
        results = []
        for decisions in batch:
            self.measured.append((task, dict(decisions)))
            if self.failing(decisions):
                results.append(CandidateResult(Status.CRASHED, message="signal 11"))
            else:
                nanoseconds = round(self.seconds(task, decisions) * 1e9)
                results.append(CandidateResult(Status.OK, (nanoseconds,) * 5))
        return results
