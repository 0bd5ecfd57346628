"""A runner that inspects the results of another for facts about the device, and reports each
once.
"""

from __future__ import annotations

import dataclasses
import math
import threading

from farrier.measure.runner import Blobs, Runner
from farrier.progress import Event, Listener, TasksScheduled, TrialsMeasured, Warned
from farrier_device.measurement import MeasureRequest, MeasureResult


class NotedRunner:
    """A runner that forwards requests to another and inspects its results.

    Times of an emulated device rank candidates if nothing else can, but are not reported;
    `is_emulated` is set once such a device has measured. The listener gets a warning of an emulated
    device, and of a device that measured while hot, in the thread that measures.
    """

    def __init__(self, runner: Runner, listener: Listener) -> None:
        self.is_emulated = False
        self._runner = runner
        self._listener = listener
        self._warning = threading.Lock()
        self._warned: set[tuple[str, str]] = set()

    @property
    def devices(self) -> int | None:
        """The number of devices of the wrapped runner."""
        return self._runner.devices

    def measure(
        self,
        request: MeasureRequest,
        blobs: Blobs,
        cancelled: threading.Event | None = None,
    ) -> MeasureResult:
        """Measure with the wrapped runner, and inspect the result."""
        result = self._runner.measure(request, blobs, cancelled)
        if result.emulated:
            self.is_emulated = True
            what = "it shows what is right and not what is fast; what it measures is not kept"
            self._warn(result.device, "is emulated", what)
        if result.hot:
            what = f"{result.hot}; it may be faster when cool"
            self._warn(result.device, "measured while it was hot", what)
        return result

    def close(self) -> None:
        """Close the wrapped runner."""
        self._runner.close()

    def say(self, event: Event) -> None:
        """Send an event to the listener, after removing times of an emulated device."""
        self._listener(_without_times(event) if self.is_emulated else event)

    def _warn(self, device: str, what: str, more: str) -> None:
        with self._warning:
            is_new = (device, what) not in self._warned
            self._warned.add((device, what))
        if is_new:
            self._listener(Warned(f"the device {device} {what}: {more}"))


def _without_times(event: Event) -> Event:
    match event:
        case TrialsMeasured():
            return dataclasses.replace(event, best_ms=math.inf)
        case TasksScheduled(tasks=tasks):
            untimed = [dataclasses.replace(task, measured_us=None) for task in tasks]
            return dataclasses.replace(event, tasks=untimed)
        case _:
            return event
