"""A chart of trials per second by number of devices, measured and predicted, as SVG. Both axes are
logarithmic, so linear scaling is a straight line."""

from __future__ import annotations

import math
from collections.abc import Sequence

from farrier.hardware.svg import curve, document, key, line, text

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 150, 40, 48
_IDEAL, _MEASURED, _PREDICTED = "#b0b0b0", "#2b6cb0", "#dd6b20"

Points = Sequence[tuple[int, float]]  # Pairs of devices and trials a second.


def chart(measured: Points, predicted: Points, candidate_s: float) -> str:
    """Return the chart as an SVG document. Its ideal line is devices that never wait, with one
    trial per `candidate_s` seconds each."""
    devices = [count for count, _ in measured]
    ideal = [(count, count / candidate_s) for count in devices]
    rates = [rate for points in (measured, predicted, ideal) for _, rate in points]
    axes = _Axes(min(devices), max(devices), min(rates), max(rates))
    lines = [(ideal, _IDEAL, "never waiting"), (measured, _MEASURED, "measured")]
    if predicted:
        lines.append((predicted, _PREDICTED, "simulated"))
    parts = [
        text(_LEFT, 22, "Trials a second of one job, by simulated devices", "start"),
        *(part for count in devices for part in axes.column(count)),
        *(part for _, rate in ideal for part in axes.line(rate)),
    ]
    for number, (points, color, name) in enumerate(lines):
        parts += _dotted([axes.place(*point) for point in points], color)
        parts += key(_WIDTH - _RIGHT + 16, _TOP + 12 + 20 * number, name, color)
    return document(_WIDTH, _HEIGHT, parts)


class _Axes:
    """The conversion of numbers of devices and rates to pixels."""

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
            line(x, _TOP, x, _HEIGHT - _BOTTOM),
            text(x, _HEIGHT - _BOTTOM + 20, words, "middle"),
        ]

    def line(self, rate: float) -> list[str]:
        _, y = self.place(1, rate)
        return [
            line(_LEFT, y, _WIDTH - _RIGHT, y),
            text(_LEFT - 8, y + 4, f"{rate:g}", "end"),
        ]


def _dotted(places: Sequence[tuple[float, float]], color: str) -> list[str]:
    dots = [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='{color}'/>" for x, y in places]
    return [curve(places, color), *dots]
