"""Print the results of measurements as tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.table import Table

from bench.measure import Result, ratio


def headline(result: Result) -> str:
    """Return a line with a model's sizes, its compile times, and a lower bound of the latency for
    the chosen algorithms."""
    arithmetic, parameters = result.floors_ms()
    compiled = ", ".join(f"{label} {s:.1f} s" for label, s in result.compile_s.items())
    return (
        f"{result.model}, {result.threads} thread{'s' if result.threads > 1 else ''}: compiled "
        f"({compiled}); artifact {result.size}; "
        f"floors {arithmetic:.2f} ms of {result.operations / 1e9:.2f} G operations "
        f"({result.roofline.operations / 1e9:.0f} GFLOP/s in f32), {parameters:.2f} ms of "
        f"{result.params_bytes / 1e6:.0f} MB parameters at "
        f"{result.roofline.bandwidth / 1e9:.0f} GB/s"
    )


def engines_table(result: Result) -> Table:
    """Return a table with a row per engine, and a column of ratios for each of Farrier's
    artifacts."""
    table = Table(box=None)
    table.add_column("engine", no_wrap=True)
    table.add_column("version", no_wrap=True)
    columns = ["median ms", "p10-p90", "best"]
    columns += [f"{figure.label} / it" for figure in result.ours]
    for name in (*columns, "error", "load s", "peak MB", "others"):
        table.add_column(name, justify="right", no_wrap=True)
    for figure in result.figures:
        table.add_row(
            figure.label,
            figure.version,
            f"{figure.median_ms:.3f}",
            f"{figure.p10_ms:.3f}-{figure.p90_ms:.3f}",
            f"{figure.best_ms:.3f}",
            *(f"{ratio(ours, figure):.3f}" for ours in result.ours),
            f"{figure.max_error:.1e}",
            f"{figure.load_s:.2f}",
            f"{figure.peak_bytes / 1e6:.0f}",
            f"{figure.other_cores:.2f}",
        )
    return table


def summary_table(results: Sequence[Result]) -> Table:
    """Return a table with a row per model: ratios to every other engine, to the fastest of them,
    and to a quantized model's float form."""
    labels = list(dict.fromkeys(other.label for result in results for other in result.others))
    table = Table(box=None)
    table.add_column("model", no_wrap=True)
    for name in ("threads", "artifact", "median ms", *labels, "best peer", "others"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        others = {other.label: other for other in result.others}
        best = result.best_peer
        for ours in result.ours:
            ratios = [
                f"{ratio(ours, others[label]):.3f}" if label in others else "-" for label in labels
            ]
            table.add_row(
                result.model,
                str(result.threads),
                ours.label,
                f"{ours.median_ms:.3f}",
                *ratios,
                "-" if best is None else f"{ratio(ours, best):.3f}",
                f"{max(label.other_cores for label in result.figures):.2f}",
            )
    return table


def means(results: Sequence[Result]) -> list[str]:
    """Return a line for each of Farrier's artifacts: the geometric mean of its ratios to the
    fastest other engine."""
    by_label: dict[tuple[str, int], list[float]] = {}
    for result in results:
        if result.best_peer is not None:
            for ours in result.ours:
                key = ours.label, result.threads
                by_label.setdefault(key, []).append(ratio(ours, result.best_peer))
    return [
        f"{label}, threads {threads}: {statistics.geometric_mean(ratios):.3f} of the best peer's "
        f"latency, geometric mean of {len(ratios)} models"
        for (label, threads), ratios in by_label.items()
    ]


def costs_table(results: Sequence[Result]) -> Table:
    """Return a table with a row per model: seconds to compile and to load, memory, size. `size` is
    the artifact's size without the additional bytes of Winograd's transformed weights, relative to
    the size of the model's weights."""
    labels = list(dict.fromkeys(peer.label for result in results for peer in result.peers))
    table = Table(box=None)
    table.add_column("model", no_wrap=True)
    for name in ("threads", "compile s", "load s", *labels, "peak MB", *labels):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("artifact MB", "Winograd MB", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        ours, peers = result.ours[0], {peer.label: peer for peer in result.peers}
        table.add_row(
            result.model,
            str(result.threads),
            f"{result.compile_s[ours.label]:.1f}",
            f"{ours.load_s:.2f}",
            *(f"{peers[label].load_s:.2f}" if label in peers else "-" for label in labels),
            f"{ours.peak_bytes / 1e6:.0f}",
            *(
                f"{peers[label].peak_bytes / 1e6:.0f}" if label in peers else "-"
                for label in labels
            ),
            f"{result.size.file_bytes / 1e6:.2f}",
            f"{result.size.winograd_bytes / 1e6:.2f}",
            "-" if result.size.ratio is None else f"{result.size.ratio:.2f}",
        )
    return table
