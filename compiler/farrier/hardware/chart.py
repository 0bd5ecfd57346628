"""An SVG chart of an exploration's results: cycles against each figure of the area."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from farrier.hardware.svg import document, line, text

_NAMES = {
    "multipliers": "multipliers",
    "scratchpad_bytes": "KiB of scratchpads",
    "lanes": "lanes of the vector unit",
    "port_bytes": "bytes a cycle of the port",
    "lut": "LUTs",
    "ff": "flip-flops",
    "dsp": "multipliers of 18 × 18 bits",
    "ram": "block RAMs",
}
_UNITS = {"scratchpad_bytes": 1024}
_WIDTH, _HEIGHT = 340, 250  # The size of a plot in pixels, as are all coordinates.
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 30, 40, 50
_LINE = 18
_FRONT, _OTHER, _GRID = "#1f6fb4", "#999999", "#cccccc"


def chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG with a row of log-log plots for each model, one for each figure of area in
    which the shapes (accelerator descriptions) differ, and a numbered legend of the shapes. Points
    on the Pareto front are filled. Shapes on which no kernel of the model runs are left out."""
    names = list(dict.fromkeys(row["shape"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    axes = list(rows[0]["area"])
    axes = [axis for axis in axes if len({row["area"][axis] for row in rows}) > 1] or axes[:1]
    parts: list[str] = []
    for y, model in enumerate(models):
        points = [row for row in rows if row["model"] == model and row["cycles"]]
        for x, axis in enumerate(axes):
            inner = "".join(_panel(points, axis, model, names))
            parts.append(f"<g transform='translate({x * _WIDTH},{y * _HEIGHT})'>{inner}</g>")
    end = len(models) * _HEIGHT + _LINE
    parts.append(text(20, end, "filled: on the Pareto front of all figures of area", "start"))
    for number, name in enumerate(names, 1):
        parts.append(text(20, end + number * _LINE, f"{number}  {name}", "start"))
    width, height = len(axes) * _WIDTH, end + (len(names) + 1) * _LINE
    return document(width, height, parts)


def _panel(
    rows: Sequence[Mapping[str, Any]], axis: str, model: str, names: Sequence[str]
) -> Iterator[str]:
    left, right, top, bottom = _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM
    yield text(left, top - 16, f"{model}: cycles", "start")
    yield text((left + right) / 2, bottom + 36, _NAMES[axis], "middle")
    yield line(left, bottom, right, bottom, _GRID) + line(left, top, left, bottom, _GRID)
    # The logarithm of 0 is not defined: a shape with no cells of a kind is drawn as if it had one.
    xs = [max(1, row["area"][axis]) for row in rows]
    ys = [row["cycles"] for row in rows]
    across, up = _scale(xs, left + 12, right - 12), _scale(ys, bottom - 12, top + 12)
    for x in _apart(across, 56):
        yield line(across[x], bottom, across[x], bottom + 4, _GRID)
        yield text(across[x], bottom + 18, f"{x / _UNITS.get(axis, 1):,.10g}", "middle")
    for y in _apart(up, 14):
        yield line(left - 4, up[y], left, up[y], _GRID)
        yield text(left - 8, up[y] + 4, f"{y:,}", "end")
    for row, x, y in zip(rows, xs, ys, strict=True):
        number = 1 + names.index(row["shape"])
        yield _point(row, across[x], up[y]) + text(across[x] + 7, up[y] - 5, str(number), "start")


def _point(row: Mapping[str, Any], x: float, y: float) -> str:
    color = _FRONT if row["on_front"] else _OTHER
    fill = color if row["on_front"] else "white"
    title = escape(f"{row['shape']}: {row['cycles']:,} cycles, {row['share']:.1%} of multiply-adds")
    return (
        f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4.5' fill='{fill}' stroke='{color}'>"
        f"<title>{title}</title></circle>"
    )


def _scale(values: Iterable[int], start: float, end: float) -> dict[int, float]:
    """Return the pixel coordinate of each distinct value on a logarithmic axis from `start` to
    `end`, in ascending order of the values."""
    ordered = sorted(set(values))
    if not ordered:
        return {}
    low, high = math.log(ordered[0]), math.log(ordered[-1])
    if low == high:
        return {ordered[0]: (start + end) / 2}
    return {n: start + (math.log(n) - low) / (high - low) * (end - start) for n in ordered}


def _apart(places: Mapping[int, float], distance: float) -> Iterator[int]:
    """Yield the values whose coordinates are at least `distance` from the last label, so that
    labels do not overlap."""
    last = math.inf
    for value, place in places.items():
        if abs(place - last) >= distance:
            yield value
            last = place
