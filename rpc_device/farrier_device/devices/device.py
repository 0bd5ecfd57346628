"""The protocol of a device: memory, code, and a queue of launches.

    device.load(code, threads, pin)                    the code of a batch
    memory = device.allocate(nbytes, position)         room, where the device has it
    device.copy_in(memory, blob)
    device.send(bytes, memory, offset)                 may return before it has copied
    bound = device.bind(launch, [(memory, offset)…])   a launch with its arguments
    device.launch(bound)                               may return before it has run
    device.receive(memory, offset, bytes)              may return before it has copied
    device.synchronize()                               waits, and returns a code of failure
    ticks = device.time([bound…], repeats, cold)
    device.copy_out(memory, nbytes)

A device is used by one thread. `Arguments` and `Candidates` measure on any device; what a memory
and a bound launch are is known to the device alone.
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
    """Code cannot be loaded, a launch cannot be bound, or a timed call has failed."""


class DeviceLostError(DeviceError):
    """The device is gone, with all that it held; opened again, it may work."""


class ContextLostError(DeviceLostError):
    """The device is gone for this process; a fresh one can open it."""


class Device(Protocol[M, B]):
    """A device that measures, with memory of type `M` and bound launches of type `B`."""

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        """Load the code of a batch, in place of the code before it. Raises DeviceError.

        The files may be closed once `unload` has returned. `threads` are those of the host that a
        call may use, on the CPUs `pin` if there are any.
        """
        ...

    def unload(self) -> None:
        """Give the code back, with all that was bound; a second call does nothing."""
        ...

    def allocate(self, nbytes: int, position: int) -> M:
        """Return room for the argument at a position: a device may place arguments apart. Raises
        MemoryError."""
        ...

    def clear(self, memory: M, nbytes: int) -> None:
        """Set the first bytes to zero."""
        ...

    def copy_in(self, memory: M, blob: Blob) -> None:
        """Copy a whole blob to the beginning of a memory. Raises ArgumentError."""
        ...

    def copy_out(self, memory: M, nbytes: int) -> memoryview:
        """Return the first bytes as the launches before have left them; they may change with the
        next launch."""
        ...

    def send(self, source: memoryview, memory: M, offset: int) -> None:
        """Start a copy of bytes of the host to an offset of a memory, after all that was started
        before. The bytes must stay as they are until `synchronize` returns."""
        ...

    def receive(self, memory: M, offset: int, target: memoryview) -> None:
        """Start a copy from an offset of a memory to bytes of the host, which are there when
        `synchronize` returns."""
        ...

    def copy_within(self, source: M, start: int, memory: M, offset: int, nbytes: int) -> None:
        """Copy bytes from the start in one memory to an offset of another one, through the host if
        the device has no other way."""
        content = memoryview(bytearray(nbytes))
        self.receive(source, start, content)
        self.synchronize()
        self.send(content, memory, offset)
        self.synchronize()

    def bind(self, launch: Launch, places: Sequence[tuple[M, int]]) -> B:
        """Return a launch with its arguments, each a memory and an offset in it. Raises
        DeviceError."""
        ...

    def launch(self, bound: B) -> None:
        """Start a launch; it begins after the one before it has ended."""
        ...

    def launch_all(self, bound: Sequence[B]) -> None:
        """Start launches, each after the one before."""
        for each in bound:
            self.launch(each)

    def synchronize(self) -> int:
        """Wait for all launches and copies; return the first code of failure since the last call,
        or 0."""
        ...

    def time(self, steps: Sequence[B], repeats: int, cold: Sequence[tuple[M, int]]) -> Ticks:
        """Run the steps in turn, `repeats` rounds of them; return the ticks of each step in each
        round. Before each round the first bytes of the memories in `cold` leave every cache. Raises
        DeviceError for a step that returns a failure."""
        ...

    def ns_of(self, ticks: Sequence[int]) -> list[int]:
        """Return ticks in nanoseconds, 1 at least."""
        ...

    def max_error(self, memory: M, argument: Argument, expected: Blob) -> float:
        """Return max |out - expected| over max |expected|; elements of `expected` whose bits are
        the argument's padding are left out. Raises DeviceError for a dtype that it cannot
        compare."""
        out = self.copy_out(memory, argument.nbytes)
        try:
            return comparison.max_error(out, expected.view, argument.dtype, argument.padding)
        except ValueError as error:
            raise DeviceError(str(error)) from None

    def close(self) -> None:
        """Give everything back; a second call does nothing."""
        ...


Ticks: TypeAlias = list[list[int]]
AnyDevice: TypeAlias = Device[Any, Any]
