"""How near searches come to the best known, over their trials, as SVG; held-out tasks alone."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from bench.tuning.report import TRIALS, Report

_WIDTH, _HEIGHT = 640, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 190, 40, 48
_STYLE = "font-family='sans-serif' font-size='12'"
_COLORS = {"search": "#2b6cb0", "search, learned before": "#dd6b20", "random": "#b0b0b0"}
_MOST = 1.5  # times the best known; what is slower is cut off


def chart(found: Report) -> str:
    """The SVG document; the first trials are far apart, so trials are on a logarithmic axis."""
    held_out = bool(found.half(True))
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{_HEIGHT}' {_STYLE}>",
        f"<rect width='{_WIDTH}' height='{_HEIGHT}' fill='white'/>",
        _text(_LEFT, 22, "Best so far over the best known, by trials", "start"),
    ]
    for power in range(int(math.log2(TRIALS)) + 1):
        x, _ = _place(2**power, 1.0)
        parts.append(_line(x, _TOP, x, _HEIGHT - _BOTTOM, "#eeeeee"))
        parts.append(_text(x, _HEIGHT - _BOTTOM + 20, str(2**power), "middle"))
    for tenth in range(round((_MOST - 1) * 10) + 1):
        ratio = 1 + tenth / 10
        _, y = _place(1, ratio)
        parts.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, "#eeeeee"))
        parts.append(_text(_LEFT - 8, y + 4, f"{ratio:.1f}", "end"))
    for number, (name, color) in enumerate(_COLORS.items()):
        points = (_place(n, found.after(name, n, held_out)) for n in range(1, TRIALS + 1))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='2'/>")
        x, y = _WIDTH - _RIGHT + 16, _TOP + 12 + 20 * number
        parts += [_line(x, y, x + 20, y, color), _text(x + 26, y + 4, name, "start")]
    return "\n".join((*parts, "</svg>\n"))


def _place(trials: int, ratio: float) -> tuple[float, float]:
    across = math.log2(trials) / math.log2(TRIALS)
    up = (min(ratio, _MOST) - 1) / (_MOST - 1)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    return _LEFT + across * width, _HEIGHT - _BOTTOM - up * height


def _line(x0: float, y0: float, x1: float, y1: float, color: str) -> str:
    return f"<line x1='{x0:.1f}' y1='{y0:.1f}' x2='{x1:.1f}' y2='{y1:.1f}' stroke='{color}'/>"


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{escape(words)}</text>"
