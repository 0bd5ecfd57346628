"""Print the results of `make bench ARGS=--operators`, and write them as a table of a documentation
page."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterable, Sequence

from rich.table import Table

from bench.operators.race import Latency, Row

_COLUMNS = ("farrier ms", "p10-p90", "ONNX Runtime ms", "p10-p90", "ratio", "of best", "error")


def table(rows: Sequence[Row]) -> Table:
    """Return one row for each model."""
    columns = Table(box=None)
    columns.add_column("operator", no_wrap=True)
    for name in _COLUMNS:
        columns.add_column(name, justify="right", no_wrap=True)
    columns.add_column("rules", overflow="fold")
    for row in rows:
        columns.add_row(*cells(row))
    return columns


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a model's row as texts; "-" if a figure was not measured."""
    rules = row.failure or counted(row.rules)
    return (
        row.model,
        *_latency(row.farrier),
        *_latency(row.peer),
        "-" if row.ratio is None else f"{row.ratio:.2f}",
        "-" if row.best_ratio is None else f"{row.best_ratio:.2f}",
        "-" if row.error is None else f"{row.error:.0e}",
        rules,
    )


def counted(rules: Iterable[str]) -> str:
    """Return schedule rules with their counts as text, such as `rows ×2, elementwise`."""
    counts = collections.Counter(rules)
    return ", ".join(rule if count == 1 else f"{rule} ×{count}" for rule, count in counts.items())


def summary(rows: Sequence[Row]) -> str:
    """Return a line with the geometric mean of the ratios, and the numbers of ratios above 1.1 and
    1.3."""
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if not ratios:
        return "nothing was measured beside ONNX Runtime"
    above = {limit: sum(ratio > limit for ratio in ratios) for limit in (1.0, 1.1, 1.3)}
    return (
        f"{len(ratios)} operators beside ONNX Runtime: geometric mean "
        f"{statistics.geometric_mean(ratios):.2f}; ratios: "
        + ", ".join(f"{count} above {limit}" for limit, count in above.items())
    )


def markdown(rows: Sequence[Row], heading: str) -> str:
    """Return the table of docs/reference/single_operators.md, preceded by a line with machine and
    date."""
    lines = [
        heading,
        "",
        "| | ms | ONNX Runtime, ms | ratio | of best | rules |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        name, ours, _, theirs, _, ratio, best, _, rules = cells(row)
        lines.append(f"| {name} | {ours} | {theirs} | {ratio} | {best} | {rules} |")
    return "\n".join([*lines, "", summary(rows) + "."])


def _latency(latency: Latency | None) -> tuple[str, str]:
    if latency is None:
        return "-", "-"
    return f"{latency.median:.3f}", f"{latency.p10:.3f}-{latency.p90:.3f}"
