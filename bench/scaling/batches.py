"""The batches that simulated devices report, and their statistics within a window of time."""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(slots=True)
class DeviceBatch:
    """A batch on a device. `begin` and `end` are seconds of the system's monotonic clock, `end`
    None while it runs; `ran_s` is the time that its candidates ran on this machine. `arrived_bytes`
    is the size of all blobs that the device fetched for it, including the library."""

    device: str
    alone: bool  # of kernels alone
    candidates: int
    begin: float
    library_bytes: int
    arrived_bytes: int
    end: float | None = None
    ran_s: float = 0.0
    fault: str = ""


class BatchLog:
    """The batches of all devices, in the order in which they began."""

    def __init__(self) -> None:
        self.batches: list[DeviceBatch] = []
        self._open: dict[str, DeviceBatch] = {}

    def hear(self, line: Mapping[str, Any]) -> None:
        """Record a line that `bench.scaling.devices` printed: the begin or end of a batch."""
        if line["batch"] == "begin":
            words = ("device", "alone", "candidates", "library_bytes", "arrived_bytes")
            batch = DeviceBatch(begin=line["at"], **{word: line[word] for word in words})
            self.batches.append(batch)
            self._open[batch.device] = batch
            return
        batch = self._open.pop(line["device"])
        batch.end, batch.ran_s, batch.fault = line["at"], line["ran_s"], line["fault"]


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """An interval of a run, in seconds of the monotonic clock."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def overlap_s(self, begin: float, end: float) -> float:
        """Return the seconds of the period from `begin` to `end` that lie within the window."""
        return max(0.0, min(end, self.end) - max(begin, self.begin))


def trials_within(batches: Iterable[DeviceBatch], window: Window, candidate_s: float) -> float:
    """Return the number of trials that devices completed within the window. A batch that is only
    partly within it counts proportionally: complete batches would make the count of a single device
    a multiple of sixteen. Batches with a fault do not count."""
    total = 0.0
    for batch in batches:
        if batch.fault:
            continue
        end = batch.end
        if end is None:
            end = max(window.end, batch.begin + candidate_s * batch.candidates)
        share = window.overlap_s(batch.begin, end) / max(end - batch.begin, 1e-9)
        total += share * batch.candidates
    return total


def busy_shares(
    batches: Iterable[DeviceBatch], window: Window, devices: Sequence[str], candidate_s: float
) -> list[float]:
    """Return, for each device, the share of the window in which it measures. A batch delayed by
    other batches on this machine counts at most for the simulated time or the real time of its
    candidates."""
    busy_s = dict.fromkeys(devices, 0.0)
    for batch in batches:
        taken_s = max(candidate_s * batch.candidates, batch.ran_s)
        end = batch.begin + taken_s if batch.end is None else min(batch.end, batch.begin + taken_s)
        busy_s[batch.device] += window.overlap_s(batch.begin, end)
    return [seconds / window.seconds for seconds in busy_s.values()]


def late_share(batches: Iterable[DeviceBatch], candidate_s: float) -> float:
    """Return the relative excess of the batches' total time over their simulated time. If it is
    more than a few percent, this machine cannot simulate the number of devices."""
    ended = [(b, b.end - b.begin) for b in batches if b.end is not None and not b.fault]
    asked_s = sum(candidate_s * batch.candidates for batch, _ in ended)
    return sum(took_s for _, took_s in ended) / asked_s - 1 if asked_s else 0.0


def most_at_once(batches: Iterable[DeviceBatch]) -> int:
    """Return the maximum number of batches that were measured at the same time."""
    changes: collections.Counter[float] = collections.Counter()
    for batch in batches:
        changes[batch.begin] += 1
        if batch.end is not None:
            changes[batch.end] -= 1
    most = now = 0
    for _, change in sorted(changes.items()):
        now += change
        most = max(most, now)
    return most


def mean_size(batches: Sequence[DeviceBatch]) -> float:
    """Return the mean number of candidates of a batch."""
    return statistics.fmean(batch.candidates for batch in batches) if batches else 0.0
