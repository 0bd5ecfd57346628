"""An entry point, as `farrier_device.measurement` describes it, that interprets a program."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from farrier_device.devices.device import AnyDevice
from farrier_device.interpreter import Interpreter, launches_in, read_by_host
from farrier_device.program import HOST, Call, Launch, Program, evaluate


@dataclasses.dataclass(frozen=True, slots=True)
class _Lent:
    """Memory of the caller."""

    address: int
    view: memoryview


class InterpretedEntry:
    """A program whose arguments are addresses: those of its memories, then that of its sizes, i64,
    if it has any. The devices are closed with it. `most_workspace` are the bytes of its last memory
    at most, an extent over its dims."""

    context = 0  # The entry takes nothing else.

    def __init__(
        self, program: Program, devices: Mapping[str, AnyDevice], most_workspace: int | str
    ) -> None:
        self.most_workspace = most_workspace
        self._program = program
        self._devices = devices
        self._interpreter = Interpreter(program, devices)

    def entry(self, arguments: Sequence[int | None], context: int) -> int:
        """Run the program; return 0, a positive code of a failure, or -1 - n if check n failed."""
        return self._interpreter.run(*self._lent(arguments))

    def timed(self, arguments: Sequence[int | None]) -> tuple[int, list[list[int]]]:
        """Run the program, each of its `launches` by itself. Return what `entry` does, and for each
        of them the nanoseconds of each time that it ran."""
        return self._interpreter.run_timed(*self._lent(arguments))

    @property
    def launches(self) -> Sequence[Launch | Call]:
        """The calls and launches of the program, in the order of its text."""
        return tuple(launches_in(self._program.steps))

    @property
    def is_emulated(self) -> bool:
        """True if one of the devices is software, whose times are not those of hardware."""
        return any(getattr(device, "is_emulated", False) for device in self._devices.values())

    @property
    def resident(self) -> AnyDevice | None:
        """The device whose memory inputs and outputs may lie in, None if the program has none."""
        return next((d for space, d in self._devices.items() if space != HOST), None)

    @contextlib.contextmanager
    def attached(self, memories: Mapping[str, tuple[Any, int]]) -> Iterator[None]:
        """Within it, memories of the caller lie on the device, each in a memory at an offset."""
        self._interpreter.attached = memories
        try:
            yield
        finally:
            self._interpreter.attached = {}

    @functools.cached_property
    def read_by_host(self) -> frozenset[str]:
        """The memories of the caller that the host itself reads or writes."""
        return read_by_host(self._program)

    def exchange(self, space: str, device: AnyDevice) -> None:
        """Replace the device of a space by another with the same code, whose memory is set up by
        the next run."""
        self._devices = {**self._devices, space: device}
        self._interpreter = Interpreter(self._program, self._devices)

    def device(self, space: str) -> AnyDevice:
        """Return the device of a space."""
        return self._devices[space]

    def _lent(self, arguments: Sequence[int | None]) -> tuple[Sequence[_Lent], memoryview | None]:
        """Return the memories of the caller, and the sizes of a run."""
        program = self._program
        sizes: memoryview | None = None
        if len(arguments) > len(program.memories):
            count = len(program.dims) + len(program.counted) + 1  # The last one breaks a check.
            sizes = _sizes_at(arguments[len(program.memories)] or 0, count)
        values = self._values(sizes)
        memories = [
            _lent(address or 0, evaluate(memory.nbytes, values))
            for memory, address in zip(program.memories, arguments, strict=False)
        ]
        return memories, sizes

    def workspace_bytes(self, sizes: int) -> int:
        """Return the bytes of the last memory of the program, for the sizes at an address."""
        values = self._values(_sizes_at(sizes, len(self._program.dims)))
        return evaluate(self._program.memories[-1].nbytes, values)

    def close(self) -> None:
        for device in self._devices.values():
            device.close()

    def _values(self, sizes: Sequence[int] | None) -> dict[str, int]:
        """Return the values of all sizes that hold for a run, by name."""
        values = dict(zip(self._program.dims, sizes or (), strict=False))
        for name, size in self._program.named.items():
            values[name] = evaluate(size, values)
        return values


def _sizes_at(address: int, count: int) -> memoryview:
    sizes = (ctypes.c_int64 * count).from_address(address) if count and address else bytearray()
    return memoryview(sizes).cast("B").cast("q")


def _lent(address: int, nbytes: int) -> _Lent:
    content = (ctypes.c_ubyte * nbytes).from_address(address) if nbytes else bytearray()
    return _Lent(address, memoryview(content).cast("B"))
