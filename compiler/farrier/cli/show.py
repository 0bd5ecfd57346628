"""Show progress on a terminal: a bar during an upload, one line for each stage, a bar during
tuning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Self, assert_never

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from farrier import progress
from farrier.progress import Event
from farrier.sdk.uploads import Sending
from farrier_device.closing import Closing


class ProgressView(Closing):
    """A listener that shows the events of `farrier.progress`; a context manager that restores the
    terminal. If the output is not a terminal, it prints plain lines, at most one in `LINE_EVERY`
    trials."""

    LINE_EVERY = 64

    def __init__(self, console: Console | None = None, *, verbose: bool = False) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._verbose = verbose
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[trials]} trials"),
            TextColumn("best {task.fields[best]} ms"),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._shown = 0
        self._longest_left = 0.0

    def close(self) -> None:
        self._stop_bar()

    def __call__(self, event: Event) -> None:
        match event:
            case progress.StageStarted() | progress.TasksScheduled():
                pass
            case progress.StageFinished(stage, seconds, summary):
                if stage == "schedule":
                    self._stop_bar()
                if self._verbose or summary:
                    self._print(f"{stage:<10} {seconds:6.2f} s  {summary}")
            case progress.SizesSettled(dims, preconditions):
                for text in dims:
                    self._print(f"open: {text}")
                for text in preconditions if self._verbose else ():
                    self._print(f"assumed: {text}")
            case progress.TasksFound(tasks, kernels):
                self._print(f"{kernels} kernels, {tasks} of them distinct")
            case progress.TuningStarted(cost_model):
                self._print(f"cost model: {cost_model}")
            case progress.TrialsMeasured():
                self._trials(event)
            case progress.VariantsCompared(what, variants, changed):
                self._print(f"{what}: {variants} variants of the model compared, {changed} changed")
            case progress.TimeSpent(budget_s, phases, works):
                budget = "" if budget_s is None else f" of {budget_s:.0f}"
                kinds = _seconds({kind: spent for kind, spent in works.items() if spent >= 0.5})
                self._print(
                    f"tuned in {sum(phases.values()):.0f} s{budget}: {_seconds(phases)}"
                    + (f" ({kinds})" if kinds else "")
                )
            case progress.Verified():
                self._print(_verified(event))
            case progress.Raced():
                self._print(raced(event))
            case progress.VersionAdded(version, median_ms, untuned_ms):
                self._print(f"version {version}{_took(median_ms, untuned_ms)}", style="green")
            case progress.RolledBack(version):
                self._print(f"rolled back to version {version}")
            case progress.Warned(message=message):
                self._print(f"warning: {message}", style="yellow")
            case _:
                assert_never(event)

    def _trials(self, event: progress.TrialsMeasured) -> None:
        if not self._console.is_terminal:
            if event.trials - self._shown >= self.LINE_EVERY:
                self._shown = event.trials
                best = f", best {ms(event.best_ms)} ms" if math.isfinite(event.best_ms) else ""
                self._print(f"{event.trials} trials{best}{_left(event)}")
            return
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task("tuning", total=1.0, trials=0, best="-", left="")
        self._bar.update(
            self._task,
            completed=self._share(event),
            trials=event.trials,
            best=ms(event.best_ms) if math.isfinite(event.best_ms) else "-",
            left=_left(event).removeprefix(", "),
        )

    def _share(self, event: progress.TrialsMeasured) -> float:
        """Return the fraction of the trials or of the time budget that is used, in [0, 1]."""
        if event.planned:
            return event.trials / event.planned
        if event.seconds_left is None:
            return 0.0
        self._longest_left = max(self._longest_left, event.seconds_left)
        return 1.0 - event.seconds_left / (self._longest_left or 1.0)

    def _stop_bar(self) -> None:
        if self._task is not None:
            self._bar.stop()
            self._task = None

    def _print(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, markup=False, soft_wrap=True)


class UploadView(Closing):
    """A listener of `Client.submit` that shows a bar for the file that is being hashed or sent, and
    removes the bar at the end. If the output is not a terminal, it prints nothing."""

    def __init__(self, console: Console | None = None) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console or Console(stderr=True, highlight=False),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if self._bar.console.is_terminal:
            self._bar.start()
        return self

    def close(self) -> None:
        if self._bar.console.is_terminal:
            self._bar.stop()

    def __call__(self, sending: Sending) -> None:
        if not self._bar.console.is_terminal:
            return
        what = f"{'sending' if sending.sent else 'reading'} {Path(sending.file).name}"
        if what not in self._tasks:
            for earlier in self._tasks.values():
                self._bar.update(earlier, visible=False)
            self._tasks[what] = self._bar.add_task(what)
        self._bar.update(self._tasks[what], completed=sending.done, total=sending.size)


def ms(milliseconds: float) -> str:
    """Return milliseconds as text with three decimals, and small values with five: `12.345`,
    `0.00036`."""
    return f"{milliseconds:.3f}" if milliseconds >= 0.1 else f"{milliseconds:.5f}"


def _took(median_ms: float | None, untuned_ms: float | None) -> str:
    """Return measured times as text: `: 1.204 ms, untuned 1.874 ms`; unknown times are left out."""
    if median_ms is None:
        return ""
    beside = "" if untuned_ms in (None, median_ms) else f", untuned {ms(untuned_ms)} ms"
    return f": {ms(median_ms)} ms{beside}"


def raced(event: progress.Raced) -> str:
    """Return the result of a race as a line such as `onnxruntime 1.31.1 on rack1: 0.503 ms, ours
    0.185 ms: 2.72 times as fast`."""
    who = f"{event.engine} {event.version}".strip()
    who += f" on {event.device}" if event.device else ""
    if event.ms is None or event.ours_ms is None or not event.ratio:
        return f"{who}: not timed: {event.note}"
    times = f"{ms(event.ms['median'])} ms, ours {ms(event.ours_ms['median'])} ms"
    return f"{who}: {times}: {1 / event.ratio:.2f} times as fast"


def _seconds(spent: Mapping[str, float]) -> str:
    return ", ".join(f"{what} {seconds:.0f} s" for what, seconds in spent.items())


def _left(event: progress.TrialsMeasured) -> str:
    return "" if event.seconds_left is None else f", {event.seconds_left:.0f} s left"


def print_table(table: Table) -> None:
    """Print a table that fits the terminal; if the output is captured by a program, lines are not
    wrapped."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)


def _verified(event: progress.Verified) -> str:
    """Return the result of verifying the complete model as one line of text."""
    where = f"{event.device}, which is emulated" if event.emulated else event.device
    if event.confirmed_by:
        where += f" and {event.confirmed_by}"
    error = f"error {event.max_error:.1e} of the output's range"
    if event.reference and not event.differs_from:
        error += f" from {event.reference}"
    text = f"verified on {where}: {error}"
    if event.untrusted:
        text = f"verified by an untrusted device alone, {where}: {error}"
    if event.differs_from:
        text = f"run on {where}, not verified: it differs from {event.differs_from}, {error}"
    if event.emulated:
        return text
    untuned = "" if event.untuned_ms is None else f", untuned {ms(event.untuned_ms)} ms"
    return f"{text}, {ms(event.latency_ms)} ms{untuned}"
