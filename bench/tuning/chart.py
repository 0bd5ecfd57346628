"""A chart of searches on held-out tasks: the best time so far over the best known time, by number
of trials, as SVG."""

from __future__ import annotations

import math

from bench.tuning.report import TRIALS, Report
from farrier.hardware.svg import curve, document, key, line, text

_WIDTH, _HEIGHT = 640, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 190, 40, 48
_COLORS = {"search": "#2b6cb0", "search, learned before": "#dd6b20", "random": "#b0b0b0"}
_MOST = 1.5  # Times the best known; slower times are cut off.


def chart(figures: Report) -> str:
    """Return the chart as an SVG document. The axis of trials is logarithmic, which spreads out the
    first ones."""
    held_out = bool(figures.half(True))
    parts = [text(_LEFT, 22, "Best so far over the best known, by trials", "start")]
    for power in range(int(math.log2(TRIALS)) + 1):
        x, _ = _place(2**power, 1.0)
        parts.append(line(x, _TOP, x, _HEIGHT - _BOTTOM))
        parts.append(text(x, _HEIGHT - _BOTTOM + 20, str(2**power), "middle"))
    for tenth in range(round((_MOST - 1) * 10) + 1):
        ratio = 1 + tenth / 10
        _, y = _place(1, ratio)
        parts.append(line(_LEFT, y, _WIDTH - _RIGHT, y))
        parts.append(text(_LEFT - 8, y + 4, f"{ratio:.1f}", "end"))
    for number, (name, color) in enumerate(_COLORS.items()):
        points = (_place(n, figures.after(name, n, held_out)) for n in range(1, TRIALS + 1))
        parts.append(curve(points, color))
        parts += key(_WIDTH - _RIGHT + 16, _TOP + 12 + 20 * number, name, color)
    return document(_WIDTH, _HEIGHT, parts)


def _place(trials: int, ratio: float) -> tuple[float, float]:
    across = math.log2(trials) / math.log2(TRIALS)
    up = (min(ratio, _MOST) - 1) / (_MOST - 1)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    return _LEFT + across * width, _HEIGHT - _BOTTOM - up * height
