"""The verb `farrier profile`: print the time of each kernel of a compiled model as a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, JustifyMethod
from rich.table import Table

from farrier.errors import UsageError

if TYPE_CHECKING:
    from farrier.bench.profile import Profile
    from farrier.runtime.artifact import Artifact

_PIPED_COLUMNS = 160


def profile(
    artifact: Annotated[Path, typer.Argument(help="The .farrier file.")],
    threads: Annotated[
        int, typer.Option(help="Number of threads; 0: the number for which the artifact was tuned.")
    ] = 0,
    seconds: Annotated[float, typer.Option(min=0, help="Time to measure, in seconds.")] = 2.0,
    by_call: Annotated[
        bool, typer.Option("--calls", help="Print a row for each call instead of each kernel.")
    ] = False,
    top: Annotated[int, typer.Option(min=0, help="Number of rows of the table; 0: all.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the calls over time, with the queues of an accelerator, to this "
            "file, as a trace for Chrome or Perfetto.",
        ),
    ] = None,
) -> None:
    """Time every kernel of an artifact. Compare it with the roofline of this machine."""
    from farrier.bench.profile import profile as measure
    from farrier.runtime.artifact import load

    loaded = load(artifact)
    times = measure(loaded, threads=threads, seconds=seconds, by_call=by_call)
    if timeline is not None:
        _write(timeline, loaded, times)
    if as_json:
        typer.echo(json.dumps(times.to_json(), indent=1))
        return
    # A pipe has no width; names of kernels are long.
    width = None if sys.stdout.isatty() else _PIPED_COLUMNS
    console = Console(highlight=False, soft_wrap=True, width=width)
    console.print(_table(times, top or len(times.kernels), by_call))
    console.print(
        f"{times.model}: {times.model_s * 1e3:.3f} ms (best {times.best_s * 1e3:.3f}), its kernels "
        f"one by one {times.kernels_s * 1e3:.3f} ms; {times.threads} threads, {times.rounds} rounds"
    )
    if times.emulated:
        console.print("the device is emulated: its times are not those of hardware")
    dots = "".join(f"{peak / 1e9:.0f} of {key}, " for key, peak in times.roofline.dots.items())
    console.print(
        f"roofline: {times.roofline.operations / 1e9:.0f} GFLOP/s, {dots}"
        f"{times.roofline.bandwidth / 1e9:.0f} GB/s; a share above 100% was served by caches"
    )


def _write(path: Path, artifact: Artifact, measured: Profile) -> None:
    """Write the profile as a trace file. Raises UsageError for a file that cannot be written."""
    from farrier.bench import timeline

    try:
        path.write_text(json.dumps(timeline.timeline(artifact, measured)))
    except OSError as error:
        raise UsageError(f"cannot write the timeline {path}: {error.strerror}") from None


def _table(times: Profile, rows: int, by_call: bool) -> Table:
    columns = ("us", "share", "GFLOP/s", "MB", "GB/s", "roofline", "rule", "schedule")
    table = Table(box=None)
    table.add_column("nodes" if by_call else "calls", max_width=40, no_wrap=True)
    for name in columns:
        justify: JustifyMethod = "left" if name in ("rule", "schedule") else "right"
        table.add_column(name, justify=justify, no_wrap=True)
    table.add_column("kernel", overflow="fold")
    for kernel in times.kernels[:rows]:
        table.add_row(
            kernel.origin if by_call else str(kernel.calls),
            f"{kernel.seconds * 1e6:.1f}",
            f"{kernel.seconds / times.kernels_s:.1%}",
            f"{kernel.gflops:.1f}",
            f"{kernel.nbytes / 1e6:.2f}",
            f"{kernel.gigabytes_per_s:.1f}",
            f"{kernel.roofline_share:.0%}",
            kernel.rule,
            kernel.source,
            kernel.name,
        )
    rest = times.kernels[rows:]
    if rest:
        seconds = sum(kernel.seconds for kernel in rest)
        share = f"{seconds / times.kernels_s:.1%}"
        table.add_row("", f"{seconds * 1e6:.1f}", share, *[""] * 6, f"{len(rest)} more")
    return table
