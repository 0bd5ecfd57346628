"""The protocol of a device: allocate memory, load code, and queue launches.

    device.load(code, threads, pin)                    load the code of a batch
    memory = device.allocate(nbytes, position)         allocate memory for an argument
    device.copy_in(memory, blob)
    device.send(bytes, memory, offset)                 may return before it has copied
    bound = device.bind(launch, [(memory, offset)…])   a launch with its arguments
    device.launch(bound)                               may return before it has run
    device.receive(memory, offset, bytes)              may return before it has copied
    device.synchronize()                               waits; returns a failure code, or 0
    ticks = device.time([bound…], repeats, cold)
    device.copy_out(memory, nbytes)

Only one thread may use a device. `Arguments` and `Candidates` measure on any device; the types of
its memory and bound launches are private to the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from farrier_device import comparison
from farrier_device.blob import Blob
from farrier_device.measurement import Argument, CodeObject, Launch

Code: TypeAlias = Sequence[tuple[CodeObject, int]]
"""Code objects, each with the open file that holds its bytes."""

M = TypeVar("M")
B = TypeVar("B")


class DeviceError(Exception):
    """Code cannot be loaded, a launch cannot be bound, or a timed launch has failed."""


class DeviceLostError(DeviceError):
    """The device has failed, and all memory and code on it is lost; it may work after it is opened
    again."""


class ContextLostError(DeviceLostError):
    """The device is lost for this process; a new process can open it again."""


class Device(Protocol[M, B]):
    """A device that measures; `M` is the type of its memory and `B` the type of its bound
    launches."""

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        """Load the code of a batch, in place of the code loaded before. Raises DeviceError.

        The code's files may be closed once `unload` has returned. `threads` is the number of host
        threads that a call may use, bound to the CPUs `pin` if there are any.
        """
        ...

    def unload(self) -> None:
        """Unload the code, with all launches bound to it; a second call does nothing."""
        ...

    def allocate(self, nbytes: int, position: int) -> M:
        """Return memory for the argument at a position; the position lets a device spread arguments
        over its memory. Raises MemoryError."""
        ...

    def clear(self, memory: M, nbytes: int) -> None:
        """Set the first `nbytes` of a memory to zero."""
        ...

    def copy_in(self, memory: M, blob: Blob) -> None:
        """Copy a whole blob to the beginning of a memory. Raises ArgumentError."""
        ...

    def copy_out(self, memory: M, nbytes: int) -> memoryview:
        """Return the first `nbytes` of a memory after the launches so far; the next launch may
        change the returned bytes."""
        ...

    def send(self, source: memoryview, memory: M, offset: int) -> None:
        """Start a copy of host bytes to an offset of a memory; it runs after all operations started
        before. The host bytes must not change until `synchronize` returns."""
        ...

    def receive(self, memory: M, offset: int, target: memoryview) -> None:
        """Start a copy from an offset of a memory to host bytes; it is complete when `synchronize`
        returns."""
        ...

    def copy_within(self, source: M, start: int, memory: M, offset: int, nbytes: int) -> None:
        """Copy bytes from an offset `start` in one memory to an offset in another, through the host
        if the device cannot copy directly."""
        content = memoryview(bytearray(nbytes))
        self.receive(source, start, content)
        self.synchronize()
        self.send(content, memory, offset)
        self.synchronize()

    def bind(self, launch: Launch, places: Sequence[tuple[M, int]]) -> B:
        """Return a launch with its arguments; each place is a memory and an offset in it. Raises
        DeviceError."""
        ...

    def launch(self, bound: B) -> None:
        """Start a launch, which begins after the previous launch has ended."""
        ...

    def launch_all(self, bound: Sequence[B]) -> None:
        """Start launches, each of which begins after the previous one has ended."""
        for each in bound:
            self.launch(each)

    def synchronize(self) -> int:
        """Wait for all launches and copies; return the first failure code since the last call, or
        0."""
        ...

    def time(self, steps: Sequence[B], repeats: int, cold: Sequence[tuple[M, int]]) -> Ticks:
        """Run `repeats` rounds, each of all the steps in order; return the ticks of each step in
        each round. Before each round, the first bytes of the memories in `cold` (memory, number
        of bytes) are flushed from every cache. Raises DeviceError for a step that returns a
        failure."""
        ...

    def ns_of(self, ticks: Sequence[int]) -> list[int]:
        """Return the ticks converted to nanoseconds, each at least 1."""
        ...

    def max_error(self, memory: M, argument: Argument, expected: Blob) -> float:
        """Return max |out - expected| over max |expected|, where `out` is the content of a memory;
        elements of `expected` whose bits are the argument's padding are ignored. Raises DeviceError
        for a dtype that the device cannot compare."""
        out = self.copy_out(memory, argument.nbytes)
        try:
            return comparison.max_error(out, expected.view, argument.dtype, argument.padding)
        except ValueError as error:
            raise DeviceError(str(error)) from None

    def close(self) -> None:
        """Release the device with all its memory and code; a second call does nothing."""
        ...


Ticks: TypeAlias = list[list[int]]
AnyDevice: TypeAlias = Device[Any, Any]
