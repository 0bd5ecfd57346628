"""Who runs a batch, and where its blobs go: the same for this machine and for the farm."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from farrier_device.measurement import MeasureRequest, MeasureResult


class Blobs(Protocol):
    """Immutable bytes by sha256: what a batch refers to is put here first."""

    def put(self, data: bytes | memoryview) -> str:
        """Stores the bytes, unless they are there, and returns their sha256 hex digest."""
        ...

    def path(self, sha256: str) -> Path:
        """The file with exactly the bytes of this digest; raises where there is none."""
        ...


class Runner(Protocol):
    """Runs batches, one after another or as the device allows.

    `measure` returns one result a candidate in the request's order, or a fault of the device; it
    never raises for what a candidate does. `close` ends whatever the runner started.
    """

    def measure(self, request: MeasureRequest, blobs: Blobs) -> MeasureResult: ...

    def close(self) -> None: ...
