"""The host as a device: it loads libraries into this process and uses this process's memory, and
its calls are synchronous.

Nothing here isolates the code; `runners.local.ChildRunner` therefore uses this device in a child
process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from farrier_device.blob import Blob
from farrier_device.devices.device import Code, DeviceError, Ticks
from farrier_device.devices.host_memory import HostMemory
from farrier_device.measurement import Argument, Launch
from farrier_device.memory import ALIGNMENT, Buffer, aligned_buffer, pointers
from farrier_device.native import Entry, Library, NativeError, Pointers, Pool

# A core that compares the low 12 bits of addresses would take loads and stores of different
# arguments for alike if all buffers started on a page; so each starts some cache lines later.
_SKEW = 17 * ALIGNMENT
_PAGE = 4096


class Bound(NamedTuple):
    """A call with its arguments, and the buffers into which their pointers point."""

    entry: Entry
    args: Pointers
    buffers: tuple[Buffer, ...]


class HostDevice(HostMemory[Bound]):
    """The processor that runs this program, with a pool of threads."""

    def __init__(self) -> None:
        self._loaded = contextlib.ExitStack()
        self._library: Library | None = None
        self._pool: Pool | None = None
        self._code = 0

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        self.unload()
        if len(code) != 1:
            raise DeviceError(f"a host loads one library, not {len(code)} code objects")
        [(_, file)] = code
        # The loader knows libraries by their paths, and so by the number of the descriptor.
        self._load(lambda: Library(f"/proc/self/fd/{file}"), threads, pin)

    def load_library(self, content: bytes, threads: int, pin: Sequence[int] = ()) -> None:
        """Load a library from bytes, in place of the code loaded before. Raises DeviceError."""
        self.unload()
        self._load(lambda: Library.from_bytes(content), threads, pin)

    def _load(self, loaded: Callable[[], Library], threads: int, pin: Sequence[int]) -> None:
        if pin:
            os.sched_setaffinity(0, {pin[0]})
        with contextlib.ExitStack() as loading, _as_device_error():
            self._library = loading.enter_context(loaded())
            self._pool = loading.enter_context(Pool(self._library, threads, pin))
            self._loaded = loading.pop_all()

    def unload(self) -> None:
        self._loaded.close()
        self._library = self._pool = None

    def allocate(self, nbytes: int, position: int) -> Buffer:
        return aligned_buffer(nbytes, skew=position * _SKEW % _PAGE)

    def bind(self, launch: Launch, places: Sequence[tuple[Buffer, int]]) -> Bound:
        if launch.grid or launch.block:
            raise DeviceError(f"{launch.symbol} has a grid, but a host calls plain functions")
        with _as_device_error():
            entry = self._here.entry(launch.symbol)
        args = pointers([buffer.address + offset for buffer, offset in places])
        return Bound(entry, args, tuple(buffer for buffer, _ in places))

    def launch(self, bound: Bound) -> None:
        code = bound.entry(bound.args, self._threads.address)
        self._code = self._code or code

    def synchronize(self) -> int:
        code, self._code = self._code, 0
        return code

    def time(
        self, steps: Sequence[Bound], repeats: int, cold: Sequence[tuple[Buffer, int]]
    ) -> Ticks:
        library, pool = self._here, self._threads
        flush = [(memory.address, nbytes) for memory, nbytes in cold]
        first, *others = (step[:2] for step in steps)
        with _as_device_error():
            if not others:
                return [library.ticks(*first, pool, repeats, flush)]
            each: Ticks = [[] for _ in steps]
            for _ in range(repeats):
                each[0] += library.ticks(*first, pool, 1, flush)
                for samples, step in zip(each[1:], others, strict=True):
                    samples += library.ticks(*step, pool, 1)
            return each

    def ns_of(self, ticks: Sequence[int]) -> list[int]:
        return self._here.ns_of(ticks)

    def max_error(self, memory: Buffer, argument: Argument, expected: Blob) -> float:
        return self._here.max_error(
            memory.address, expected.address, argument.nbytes, argument.dtype, argument.padding
        )

    def close(self) -> None:
        self.unload()

    @property
    def _here(self) -> Library:
        assert self._library is not None, "no code is loaded"
        return self._library

    @property
    def _threads(self) -> Pool:
        assert self._pool is not None, "no code is loaded"
        return self._pool


@contextlib.contextmanager
def _as_device_error() -> Iterator[None]:
    try:
        yield
    except NativeError as error:
        raise DeviceError(str(error)) from None
