"""Timestamps that a GPU writes at the beginning and end of a compute pass."""

from __future__ import annotations

import struct
from typing import Any

FEATURE = "timestamp-query"
MOST_PASSES = 128  # of one submission
_BYTES = 8  # of a timestamp


class Timestamps:
    """The timestamps of up to MOST_PASSES compute passes. `period_ns` is the duration of a tick in
    nanoseconds."""

    def __init__(self, webgpu: Any, device: Any) -> None:
        usage = webgpu.BufferUsage
        self.period_ns = _period_ns(device)
        self._device = device
        self._queries = device.create_query_set(type="timestamp", count=2 * MOST_PASSES)
        self._resolved = device.create_buffer(
            size=2 * MOST_PASSES * _BYTES, usage=usage.QUERY_RESOLVE | usage.COPY_SRC
        )

    @staticmethod
    def of(webgpu: Any, device: Any) -> Timestamps | None:
        """Return timestamps for a device. None if the device supports none, or only coarse ones:
        Dawn rounds timestamps to 65 µs to prevent side-channel attacks."""
        is_fine = webgpu.__name__ != "wgpudawn" and FEATURE in device.features
        return Timestamps(webgpu, device) if is_fine else None

    def around(self, number: int) -> dict[str, Any]:
        """Return the part of a pass's descriptor that makes the GPU write timestamps at the
        beginning and end of the pass with this number."""
        return {
            "query_set": self._queries,
            "beginning_of_pass_write_index": 2 * number,
            "end_of_pass_write_index": 2 * number + 1,
        }

    def resolve(self, encoder: Any, count: int) -> None:
        """Record a copy of the timestamps of the first `count` passes into the buffer that `read`
        maps."""
        encoder.resolve_query_set(self._queries, 0, 2 * count, self._resolved, 0)

    def read(self, count: int) -> list[tuple[int, int]]:
        """Wait for the first `count` passes; return the ticks at which each pass began and
        ended."""
        content = self._device.queue.read_buffer(self._resolved, 0, 2 * count * _BYTES)
        ticks = struct.unpack(f"<{2 * count}Q", bytes(content))
        return list(zip(ticks[::2], ticks[1::2], strict=True))


def _period_ns(device: Any) -> float:
    """Return the duration of a tick in nanoseconds: 1 according to the specification, but wgpu's
    library returns the driver's ticks."""
    try:
        from wgpu.backends.wgpu_native import lib

        return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal)) or 1.0
    except (ImportError, AttributeError, TypeError):
        return 1.0
