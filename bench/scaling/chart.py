"""Trials a second over devices, measured and predicted, as SVG. Both axes are logarithmic, so what
scales is a straight line."""

from __future__ import annotations

import math
from collections.abc import Sequence

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 150, 40, 48
_STYLE = "font-family='sans-serif' font-size='12'"
_IDEAL, _MEASURED, _PREDICTED = "#b0b0b0", "#2b6cb0", "#dd6b20"

Points = Sequence[tuple[int, float]]  # devices, trials a second


def chart(measured: Points, predicted: Points, candidate_s: float) -> str:
    """The SVG document. The ideal is a device that never waits: a trial each `candidate_s`."""
    devices = [count for count, _ in measured]
    ideal = [(count, count / candidate_s) for count in devices]
    rates = [rate for points in (measured, predicted, ideal) for _, rate in points]
    axes = _Axes(min(devices), max(devices), min(rates), max(rates))
    lines = [(ideal, _IDEAL, "never waiting"), (measured, _MEASURED, "measured")]
    if predicted:
        lines.append((predicted, _PREDICTED, "simulated"))
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{_HEIGHT}' {_STYLE}>",
        f"<rect width='{_WIDTH}' height='{_HEIGHT}' fill='white'/>",
        _text(_LEFT, 22, "Trials a second of one job, by simulated devices", "start"),
        *(part for count in devices for part in axes.column(count)),
        *(part for _, rate in ideal for part in axes.line(rate)),
    ]
    for number, (points, color, name) in enumerate(lines):
        parts += _curve([axes.place(*point) for point in points], color)
        y = _TOP + 12 + 20 * number
        x = _WIDTH - _RIGHT + 16
        parts.append(f"<line x1='{x}' x2='{x + 20}' y1='{y}' y2='{y}' stroke='{color}'/>")
        parts.append(_text(x + 26, y + 4, name, "start"))
    return "\n".join((*parts, "</svg>\n"))


class _Axes:
    """From devices and rates to pixels."""

    def __init__(self, fewest: int, most: int, slowest: float, fastest: float) -> None:
        self._x0, self._x1 = math.log2(fewest), math.log2(max(most, fewest + 1))
        self._y0, self._y1 = math.log2(slowest) - 0.2, math.log2(fastest) + 0.2

    def place(self, devices: int, rate: float) -> tuple[float, float]:
        across = (math.log2(devices) - self._x0) / (self._x1 - self._x0)
        up = (math.log2(rate) - self._y0) / (self._y1 - self._y0)
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + across * width, _HEIGHT - _BOTTOM - up * height

    def column(self, devices: int) -> list[str]:
        x, _ = self.place(devices, 2**self._y0)
        words = f"{devices} device{'s' if devices > 1 else ''}"
        return [
            f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{_TOP}' y2='{_HEIGHT - _BOTTOM}' "
            "stroke='#eeeeee'/>",
            _text(x, _HEIGHT - _BOTTOM + 20, words, "middle"),
        ]

    def line(self, rate: float) -> list[str]:
        _, y = self.place(1, rate)
        return [
            f"<line x1='{_LEFT}' x2='{_WIDTH - _RIGHT}' y1='{y:.1f}' y2='{y:.1f}' "
            "stroke='#eeeeee'/>",
            _text(_LEFT - 8, y + 4, f"{rate:g}", "end"),
        ]


def _curve(places: Sequence[tuple[float, float]], color: str) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='{color}'/>" for x, y in places]
    return [f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='2'/>", *dots]


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{words}</text>"
