"""Detect doubtful measurements: those contradicted by other measurements of the same task.

Any measurement may be wrong: of a throttled device, or by a dishonest agent. A measurement that is
far from all comparable ones is set aside, and no model learns from it.
"""

from __future__ import annotations

import numpy as np

from farrier.space import Population
from farrier.space.space import Floats

FAR = 5.0  # The factor by which a doubtful time differs from comparable ones.
_FEW = 3  # The fewest neighbours, or times of one candidate, that can contradict a time.


def outliers(rows: Population, seconds: Floats, bounds: Floats) -> list[str]:
    """Return the reason to doubt each measurement of a task, "" if there is none.

    `rows` [n, knobs] are the candidates, which need not be distinct; `seconds` [n] their times on
    comparable devices, infinite for a failure, which is never doubted; `bounds` [n] lower bounds of
    the times by the analytic model.

    A measurement is doubted if it is faster than its bound by more than the factor `FAR`; if it
    differs by a factor of `FAR` from the typical time of the same candidate elsewhere; or, for a
    candidate measured at most twice, if it differs by that factor from the times of all neighbours,
    which differ in one knob.
    """
    doubts = [""] * len(rows)
    for at in np.flatnonzero(np.isfinite(seconds)):
        doubts[at] = _doubt(int(at), rows, seconds, bounds)
    return doubts


def _doubt(at: int, rows: Population, seconds: Floats, bounds: Floats) -> str:
    mine = seconds[at]
    if mine * FAR < bounds[at]:
        return f"{_us(mine)}, where no device should take less than {_us(bounds[at])}"
    differing = (rows != rows[at]).sum(axis=1)
    ran = np.isfinite(seconds)
    same = seconds[ran & (differing == 0)]
    if len(same) >= _FEW:
        usual = float(np.median(same))
        if _is_far(mine, usual):
            return f"{_us(mine)}, where the same candidate typically takes {_us(usual)}"
        return ""
    beside = seconds[ran & (differing == 1)]
    if len(beside) >= _FEW and (mine * FAR < beside.min() or mine > FAR * beside.max()):
        least, most = _us(beside.min()), _us(beside.max())
        return f"{_us(mine)}, where its {len(beside)} neighbours take {least} to {most}"
    return ""


def _is_far(seconds: float, other: float) -> bool:
    return seconds * FAR < other or seconds > FAR * other


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs"
