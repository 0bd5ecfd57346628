"""Building blocks of charts as SVG; coordinates are in pixels."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

GRID = "#eeeeee"


def document(width: int, height: int, parts: Iterable[str]) -> str:
    """Return an SVG document that draws the parts on a white page."""
    style = "font-family='sans-serif' font-size='12'"
    return "\n".join(
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' {style}>",
            f"<rect width='{width}' height='{height}' fill='white'/>",
            *parts,
            "</svg>\n",
        )
    )


def line(x0: float, y0: float, x1: float, y1: float, color: str = GRID) -> str:
    return f"<line x1='{x0:.1f}' x2='{x1:.1f}' y1='{y0:.1f}' y2='{y1:.1f}' stroke='{color}'/>"


def curve(places: Iterable[tuple[float, float]], color: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='2'/>"


def key(x: float, y: float, name: str, color: str) -> list[str]:
    """Return the elements of a curve's legend entry."""
    return [line(x, y, x + 20, y, color), text(x + 26, y + 4, name, "start")]


def text(x: float, y: float, words: str, anchor: str) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{escape(words)}</text>"
