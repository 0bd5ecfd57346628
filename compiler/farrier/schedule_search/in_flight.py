"""Batches of candidates in flight, each built and measured by a thread of its own."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Sequence

from farrier.schedule_search.trial import DeviceFaultError, Measurer
from farrier.space import Decisions, Space
from farrier_device.closing import Closing
from farrier_device.measurement import CandidateResult

FAULTS = 3  # The attempts at a batch that the device could not measure.


@dataclasses.dataclass(frozen=True, slots=True)
class Finished:
    """The results of a batch of task number `task`, one for each of its `candidates`; or the
    `fault` of the device if the batch could not be measured."""

    task: int
    candidates: Sequence[Decisions]
    results: Sequence[CandidateResult] = ()
    fault: DeviceFaultError | None = None


class InFlight(Closing):
    """The batches that are being built and measured, or whose results have not been taken yet. Only
    one thread may start batches and take results. Batches that are still in flight at the end are
    cancelled."""

    def __init__(self, measurer: Measurer) -> None:
        self._measurer = measurer
        self._called_off = threading.Event()
        self._threads: set[threading.Thread] = set()
        self._ended: queue.SimpleQueue[Finished | Exception] = queue.SimpleQueue()
        self.batches = 0
        self.candidates = 0

    def begin(self, task: int, key: str, space: Space, batch: Sequence[Decisions]) -> None:
        """Start to build and measure candidates of a task in a new thread."""
        self.batches += 1
        self.candidates += len(batch)
        thread = threading.Thread(target=self._run, args=(task, key, space, batch), daemon=True)
        self._threads = {running for running in self._threads if running.is_alive()} | {thread}
        thread.start()

    def next(self, timeout_s: float | None) -> Finished | None:
        """Return the next batch that ends; None if no batch ends within the timeout. Raises the
        errors of the measurement, except device faults."""
        try:
            ended = self._ended.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(ended, Exception):
            raise ended
        self.batches -= 1
        self.candidates -= len(ended.candidates)
        return ended

    def close(self) -> None:
        """Cancel all batches in flight, and wait until their threads end."""
        self._called_off.set()
        for thread in self._threads:
            thread.join()

    def _run(self, task: int, key: str, space: Space, batch: Sequence[Decisions]) -> None:
        try:
            self._ended.put(self._measured(task, key, space, batch))
        except Exception as error:  # The searching thread raises it.
            self._ended.put(error)

    def _measured(self, task: int, key: str, space: Space, batch: Sequence[Decisions]) -> Finished:
        """Return the results of a batch, or the last device fault if the device failed `FAULTS`
        times in a row."""
        attempt = 1
        while True:
            try:
                results = self._measurer.measure(key, space, batch, self._called_off)
                return Finished(task, batch, results)
            except DeviceFaultError as fault:
                if fault.is_final or attempt == FAULTS or self._called_off.is_set():
                    return Finished(task, batch, fault=fault)
                attempt += 1
