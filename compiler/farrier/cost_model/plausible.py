"""Which measurements cannot be right, by what others say of the same task.

Whoever measures may err: a device that was throttled, an agent that lies. What is far from all that
it can be compared with is set aside, and teaches nobody.
"""

from __future__ import annotations

import numpy as np

from farrier.space import Population
from farrier.space.space import Floats

FAR = 5.0  # times
_FEW = 3  # neighbours, or times of one candidate, that say something


def outliers(rows: Population, seconds: Floats, bounds: Floats) -> list[str]:
    """Why each measurement of a task is not to be believed, "" where it is.

    `rows` [n, knobs] are candidates, of which several may be equal; `seconds` [n] what each took on
    devices that compare, infinite where it failed, which is believed; `bounds` [n] what the
    analytic model says that no device can beat.

    One is doubted that is faster than `FAR` times its bound allows; that is `FAR` times off the
    typical time of the same candidate elsewhere; or, measured once or twice, `FAR` times off each
    of its neighbours, which differ in one knob.
    """
    found = [""] * len(rows)
    for at in np.flatnonzero(np.isfinite(seconds)):
        found[at] = _doubt(int(at), rows, seconds, bounds)
    return found


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


def _is_far(one: float, other: float) -> bool:
    return one * FAR < other or one > FAR * other


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs"
