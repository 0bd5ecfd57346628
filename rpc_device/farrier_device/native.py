"""Native code in this process: load a linked library, start its threads, call and time its entry
points.

A library that Farrier links contains its entry points (`measurement.py` defines their C signature)
and the support library that they need (`farrier_pool_*`, `farrier_time`, …). Nothing here isolates
the code: for code that may crash or hang, `runners.local.ChildRunner` uses this module in a child
process.

    with Library(path) as library, Pool(library, threads=2) as pool:
        call(library.entry("model"), pointers([x.address, y.address]), pool)
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from farrier_device.closing import Closing
from farrier_device.memory import Buffer, aligned_buffer, pointers
from farrier_device.storage.durable import write_all

__all__ = [
    "Buffer",
    "Entry",
    "Library",
    "NativeError",
    "Pool",
    "aligned_buffer",
    "call",
    "pointers",
]

Pointers = ctypes.Array[ctypes.c_void_p]

# Dtypes by the names of the compiler's IR; the codes are those of `farrier_max_error`.
DTYPE_CODES = {
    "f32": 0, "f64": 1, "i8": 2, "i32": 3, "i64": 4, "u8": 5, "bf16": 6, "u64": 7, "f16": 8,
    "i16": 9, "u16": 10, "u32": 11, "bool": 12, "f8e4m3fn": 13, "f8e4m3fnuz": 14, "f8e5m2": 15,
    "f8e5m2fnuz": 16, "f8e8m0": 17, "f6e2m3": 18, "f6e3m2": 19, "f4e2m1": 20, "i4": 21, "u4": 22,
    "i2": 23, "u2": 24,
}  # fmt: skip
_WIDER = {"i16": 2, "u16": 2, "f16": 2, "bf16": 2, "f32": 4, "i32": 4, "u32": 4,
          "f64": 8, "i64": 8, "u64": 8}  # fmt: skip
DTYPE_BYTES = {name: _WIDER.get(name, 1) for name in DTYPE_CODES}

# A pool's state that holds the kernel's error, after which no code of the library may run.
_REFUSED_AT = 16
_CALIBRATION_S = 0.01  # The clocks are read to about 100 ns, which is an error of 1e-5.
_READINGS = 5  # The readings of both clocks, of which the least interrupted one counts.


class NativeError(Exception):
    """A library cannot be loaded or lacks a symbol, or an entry point has returned a failure."""


class Entry(Protocol):
    """A bound entry point: a function of `args` and the pool's address that returns a code."""

    def __call__(self, args: Pointers, pool: int, /) -> int: ...


class Library(Closing):
    """A loaded library. `close` unloads the library, after which no function bound from it may be
    called."""

    def __init__(self, path: Path | str) -> None:
        """Load a library. Raises NativeError if the file is not a library for this machine, or was
        not linked by Farrier."""
        try:
            self._dll = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise NativeError(f"cannot load the library: {error}") from None
        self._file: int | None = None
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        try:
            self._max_error = self.function(
                "farrier_max_error", ctypes.c_double, pointer, pointer, number, number
            )
            self._time = self.function(
                "farrier_time",
                ctypes.c_int32,
                *(pointer, pointer, pointer, pointer, number, number, pointer),
            )
            self._ticks = self.function("farrier_ticks", ctypes.c_uint64)
            _begin_calibration(self._ticks)
        except NativeError:
            self.close()
            raise

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Load a library from bytes, for example from a member of an artifact."""
        file = os.memfd_create("farrier-library", os.MFD_CLOEXEC)
        try:
            write_all(file, data)
            library = cls(f"/proc/self/fd/{file}")
        except BaseException:
            os.close(file)
            raise
        # The loader identifies libraries by path: while this one is loaded, its descriptor stays
        # open, so that no other library gets the same number.
        library._file = file
        return library

    def function(self, symbol: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        """Return the function with this symbol, bound with ctypes types. Raises NativeError if the
        library lacks the symbol."""
        try:
            bound = self._dll[symbol]
        except AttributeError:
            raise NativeError(f"the library has no symbol {symbol!r}") from None
        bound.restype = result
        bound.argtypes = arguments
        return bound

    def entry(self, symbol: str) -> Entry:
        """Return the entry point with this symbol. Raises NativeError if the library lacks the
        symbol."""
        return self.function(symbol, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)

    def max_error(
        self, out: int, expected: int, nbytes: int, dtype: str, padding: int | None = None
    ) -> float:
        """Return max |out - expected| over max |expected| of two arrays at these addresses;
        elements of `expected` whose bits are `padding` are ignored."""
        count, code = nbytes // DTYPE_BYTES[dtype], DTYPE_CODES[dtype]
        mark = 0 if padding is None else padding + 1
        return float(self._max_error(out, expected, count, code | mark << 8))

    def time(
        self,
        entry: Entry,
        args: Pointers,
        pool: Pool,
        repeats: int,
        flush: Sequence[tuple[int, int]] = (),
    ) -> list[int]:
        """Return the nanoseconds of each of `repeats` calls of an entry point. Parameters and
        errors are those of `ticks`."""
        return self.ns_of(self.ticks(entry, args, pool, repeats, flush))

    def ticks(
        self,
        entry: Entry,
        args: Pointers,
        pool: Pool,
        repeats: int,
        flush: Sequence[tuple[int, int]] = (),
    ) -> list[int]:
        """Return the ticks of each of `repeats` calls of an entry point. Before each call, the
        memory ranges in `flush` (address, bytes) are flushed from every cache. Raises NativeError
        if a call returns a failure."""
        ticks = (ctypes.c_uint64 * repeats)()
        ranges = (ctypes.c_int64 * (2 * len(flush)))(*(word for pair in flush for word in pair))
        function = ctypes.cast(entry, ctypes.c_void_p)  # type: ignore[arg-type]
        code = self._time(function, args, pool.address, ranges, len(flush), repeats, ticks)
        if code != 0:
            raise NativeError(f"returned code {code}")
        return list(ticks)

    def ns_of(self, ticks: Sequence[int]) -> list[int]:
        """Return the ticks converted to nanoseconds, each at least 1, because a slow counter may
        not have advanced."""
        scale = self.ns_per_tick()
        return [max(1, round(count * scale)) for count in ticks]

    def ns_per_tick(self) -> float:
        """The period in nanoseconds of the counter that `farrier_time` reads. It is measured once
        per process, over the time since the first library was loaded, or longer if that time is too
        short."""
        global _ns_per_tick
        if _ns_per_tick is None:
            assert _calibration is not None
            _ns_per_tick = calibrate(self._ticks, _calibration)
        return _ns_per_tick

    def close(self) -> None:
        """Unload the library; a second call does nothing."""
        if self._dll._handle:
            _dlclose(self._dll._handle)
            self._dll._handle = 0
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Pool(Closing):
    """A pool of threads that share the work of a library's entry points; the calling thread is one
    of them.

    With `threads=1` the caller works alone. `pin` names one CPU per worker, including worker 0 (the
    calling thread, which is not moved); each helper thread is bound to its CPU. A helper whose CPU
    is the one on which the caller runs moves to the CPU of worker 0.
    """

    address: int

    def __init__(self, library: Library, threads: int = 1, pin: Sequence[int] = ()) -> None:
        if threads < 1:
            raise ValueError(f"cannot create a pool of {threads} threads")
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        size = library.function("farrier_pool_size", number, number)(threads)
        init = library.function("farrier_pool_init", None, pointer, number, pointer)
        self._work = library.function("farrier_pool_work", None, pointer, number)
        self._shutdown = library.function("farrier_pool_shutdown", None, pointer)
        self._memory = aligned_buffer(size)
        self.threads = threads
        self.address = self._memory.address
        cpus = [pin[worker % len(pin)] for worker in range(threads)] if pin else []
        init(self.address, threads, (ctypes.c_int32 * threads)(*cpus) if pin else None)
        refused = ctypes.c_int32.from_address(self.address + _REFUSED_AT).value
        if refused:
            raise NativeError(
                f"the kernel refuses the registers that the code needs: {os.strerror(refused)}"
            )
        self._helpers = [
            threading.Thread(
                target=_help,
                args=(self._work, self.address, worker, cpus[worker] if pin else None),
                name=f"farrier-pool-{worker}",
                daemon=True,
            )
            for worker in range(1, threads)
        ]
        for helper in self._helpers:
            helper.start()

    def close(self) -> None:
        """End the helper threads; a second call does nothing. No entry point may be running."""
        if not self.address:
            return
        self._shutdown(self.address)
        for helper in self._helpers:
            helper.join()
        self.address = 0


def _help(work: Callable[..., Any], pool: int, worker: int, cpu: int | None) -> None:
    """Run a helper thread, without a reference to its pool. The thread binds itself to a CPU before
    the library would, because the library binds by thread id, which a sandbox denies. If the CPU is
    not available, the thread stays unbound, as in the library."""
    if cpu is not None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {cpu})
    work(pool, worker)


def call(entry: Entry, args: Pointers, pool: Pool) -> None:
    """Run an entry point. Raises NativeError if it returns a failure.

    `args` is a result of `pointers` that the caller reuses for every call, so that a call takes one
    microsecond instead of twenty.
    """
    code = entry(args, pool.address)
    if code != 0:
        raise NativeError(f"the entry point returned code {code}")


class Reading(NamedTuple):
    """The values of a counter and of the monotonic clock at the same moment."""

    ticks: int
    ns: int


def read_both(read_ticks: Callable[[], int]) -> Reading:
    """Read a counter and the monotonic clock at the same moment, as closely as interrupts allow."""
    narrowest, reading = math.inf, Reading(0, 0)
    for _ in range(_READINGS):
        before = time.perf_counter_ns()
        ticks = read_ticks()
        after = time.perf_counter_ns()
        if after - before < narrowest:
            narrowest, reading = after - before, Reading(ticks, (before + after) // 2)
    return reading


def calibrate(read_ticks: Callable[[], int], begin: Reading) -> float:
    """Return the nanoseconds per tick of a counter, compared with the monotonic clock since the
    reading `begin`; wait first if that reading is too recent."""
    passed_s = (time.perf_counter_ns() - begin.ns) / 1e9
    time.sleep(max(0.0, _CALIBRATION_S - passed_s))
    end = read_both(read_ticks)
    return (end.ns - begin.ns) / (end.ticks - begin.ticks)


def _begin_calibration(read_ticks: Callable[[], int]) -> None:
    global _calibration
    if _calibration is None:
        _calibration = read_both(read_ticks)


# All libraries read the same hardware counter.
_calibration: Reading | None = None
_ns_per_tick: float | None = None

_dlclose = ctypes.CDLL(None).dlclose
_dlclose.argtypes = (ctypes.c_void_p,)
_dlclose.restype = ctypes.c_int
