"""A bar chart of the results, written as SVG without a plotting package, which would be the largest
dependency of the project.

There is a group of bars per model and a bar per artifact: its median latency over the fastest other
engine's, with a line from p10 to p90.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.measure import Result
from farrier.bench.race import Figures

_LEFT, _BAR, _GAP, _TOP = 230, 16, 14, 46
_SCALE = 260.0  # Pixels for the best peer's latency.
_MOST = 2.5  # A longer bar is cut off here, with its figure.
_COLORS = {
    "farrier": "#8fb8de",
    "farrier:tuned": "#2b6cb0",
    "onnxruntime": "#b0b0b0",
    "openvino": "#8a8a8a",
}
_OTHER = "#d0d0d0"
_STYLE = "font-family='sans-serif' font-size='11'"


def chart(results: Sequence[Result]) -> str:
    """Return the chart as an SVG document. Results without another engine are left out."""
    parts: list[str] = []
    y = _TOP
    for result in results:
        best = result.best_peer
        if best is None:
            continue
        name = f"{result.model}, {result.threads} thread{'s' if result.threads > 1 else ''}"
        parts.append(_text(8, y + _BAR - 4, name, "bold"))
        for figure in result.figures:
            parts += _bar(figure, best.median_ms, y)
            y += _BAR
        y += _GAP
    width = round(_LEFT + _SCALE * _MOST + 110)
    line = _LEFT + _SCALE
    return "\n".join(
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{y}' {_STYLE}>",
            f"<rect width='{width}' height='{y}' fill='white'/>",
            _text(8, 18, "Latency over the best peer's (1.0); bars: median, lines: p10 to p90"),
            *parts,
            f"<line x1='{line}' x2='{line}' y1='{_TOP - 8}' y2='{y - _GAP}' stroke='#c53030'/>",
            _text(line - 8, _TOP - 12, "1.0"),
            "</svg>\n",
        )
    )


def _bar(figure: Figures, unit: float, y: int) -> list[str]:
    def pixels(ms: float) -> float:
        return min(ms / unit, _MOST) * _SCALE

    middle = y + _BAR / 2
    low, high, end = pixels(figure.p10_ms), pixels(figure.p90_ms), pixels(figure.median_ms)
    return [
        _text(_LEFT - 6, y + _BAR - 4, figure.label, anchor="end"),
        f"<rect x='{_LEFT}' y='{y + 2}' width='{end:.1f}' height='{_BAR - 3}' "
        f"fill='{_COLORS.get(figure.label, _OTHER)}'/>",
        f"<line x1='{_LEFT + low:.1f}' x2='{_LEFT + high:.1f}' y1='{middle}' y2='{middle}' "
        "stroke='black'/>",
        _text(
            _LEFT + max(end, high) + 6,
            y + _BAR - 4,
            f"{figure.median_ms / unit:.2f}  ({figure.median_ms:.2f} ms)",
        ),
    ]


def _text(x: float, y: float, words: str, weight: str = "normal", anchor: str = "start") -> str:
    place = f"x='{x:.1f}' y='{y:.1f}' font-weight='{weight}' text-anchor='{anchor}'"
    return f"<text {place}>{escape(words)}</text>"
