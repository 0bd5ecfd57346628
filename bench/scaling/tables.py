"""The tables of the measurement and of the simulation, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from bench.scaling.results import Measurement

LEAST_SPEED_UP = 7.2  # of eight devices
LEAST_BUSY = 0.85  # The least busy share of each device.
MOST_TIME = 0.25  # The most time to the quality of one device, as a share of that device's time.
_OF = 8  # The number of devices to which these limits apply.

_HEADS = (
    "devices",
    "seconds",
    "trials",
    "trials/s",
    "speed-up",
    "lowest busy",
    "batch",
    "batches at once",
    "core-s a trial",
    "s to one device's quality",
    "of its time",
    "late",
    "others",
)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 0) -> str:
    """Return a Markdown table. All columns except the first `words` are numbers, and aligned to the
    right; cells are padded, so that the source is readable."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    rules = [
        "-" * (width + 2) if number < words else "-" * (width + 1) + ":"
        for number, width in enumerate(widths)
    ]
    lines = [_line(heads, widths, words), f"|{'|'.join(rules)}|"]
    return "\n".join([*lines, *(_line(row, widths, words) for row in rows)])


def _line(cells: Sequence[str], widths: Sequence[int], words: int) -> str:
    padded = [
        f" {cell:<{width}} " if number < words else f" {cell:>{width}} "
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"|{'|'.join(padded)}|"


def measured(measurement: Measurement) -> str:
    """Return a table with a row for each run, that is, for each number of devices."""
    rows = []
    for row in measurement.rows:
        rows.append(
            (
                str(row.devices),
                f"{row.elapsed_s:.0f}",
                f"{row.trials:.0f}",
                f"{row.rate:.2f}",
                number(measurement.speed_up(row), ".2f"),
                f"{min(row.busy):.0%}",
                f"{row.batch_size:.1f}",
                str(row.at_once),
                f"{row.core_s:.3f}",
                number(row.reached_s, ".1f"),
                number(measurement.time_share(row), ".2f"),
                f"{row.late:.1%}",
                f"{row.others:.2f}",
            )
        )
    return markdown(_HEADS, rows)


def lines(measurement: Measurement) -> list[tuple[str, bool]]:
    """Return the limits on the run with eight devices as (text, whether it is met); none without
    runs with eight devices and with one."""
    row = measurement.row(_OF)
    speed_up = None if row is None else measurement.speed_up(row)
    if row is None or speed_up is None:
        return []
    share = measurement.time_share(row)
    return [
        (
            f"{_OF} devices complete {speed_up:.2f} times the trials of one, of {LEAST_SPEED_UP}",
            speed_up >= LEAST_SPEED_UP,
        ),
        (
            f"the least busy of {_OF} devices measures {min(row.busy):.0%} of the time, "
            f"of {LEAST_BUSY:.0%}",
            min(row.busy) >= LEAST_BUSY,
        ),
        (
            f"{_OF} devices come to the quality of one in {number(share, '.2f')} of its time, "
            f"of {MOST_TIME}",
            share is not None and share <= MOST_TIME,
        ),
    ]


def number(value: float | None, form: str) -> str:
    """Return a value as text, or a dash for None."""
    return "-" if value is None else format(value, form)
