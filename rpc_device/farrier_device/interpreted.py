"""An entry point, as defined in `farrier_device.measurement`, that interprets a program on
devices."""

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
    """Memory that the caller of an entry point owns."""

    address: int
    view: memoryview


class InterpretedEntry:
    """A program whose arguments are addresses: those of its memories, then the address of its sizes
    (i64), if it has any. Closing the entry closes its devices. `most_workspace` is the largest size
    in bytes of the program's last memory, its workspace, as an expression over its dims."""

    context = 0  # The entry takes nothing else.

    def __init__(
        self, program: Program, devices: Mapping[str, AnyDevice], most_workspace: int | str
    ) -> None:
        self.most_workspace = most_workspace
        self._program = program
        self._devices = devices
        self._interpreter = Interpreter(program, devices)

    def entry(self, arguments: Sequence[int | None], context: int) -> int:
        """Run the program; return 0, a positive code of a failed function or kernel, or -1 - n if
        check number n failed."""
        return self._interpreter.run(*self._lent(arguments))

    def timed(self, arguments: Sequence[int | None]) -> tuple[int, list[list[int]]]:
        """Run the program and time each call and launch separately. Return the result of `entry`,
        and for each of `launches` the nanoseconds of each of its executions."""
        return self._interpreter.run_timed(*self._lent(arguments))

    @property
    def launches(self) -> Sequence[Launch | Call]:
        """The calls and launches of the program, in the order of the program's text."""
        return tuple(launches_in(self._program.steps))

    @property
    def is_emulated(self) -> bool:
        """True if one of the devices is emulated in software; its times are then not those of
        hardware."""
        return any(getattr(device, "is_emulated", False) for device in self._devices.values())

    @property
    def resident(self) -> AnyDevice | None:
        """The device on which inputs and outputs may stay between runs; None if the program uses no
        device."""
        return next((d for space, d in self._devices.items() if space != HOST), None)

    @contextlib.contextmanager
    def attached(self, memories: Mapping[str, tuple[Any, int]]) -> Iterator[None]:
        """Return a context in which memories of the caller, by name, are in device memory, each at
        an offset of a device allocation."""
        self._interpreter.attached = memories
        try:
            yield
        finally:
            self._interpreter.attached = {}

    @functools.cached_property
    def read_by_host(self) -> frozenset[str]:
        """The names of those memories of the caller that host code in the program reads or
        writes."""
        return read_by_host(self._program)

    def exchange(self, space: str, device: AnyDevice) -> None:
        """Replace the device of a space by another device with the same code loaded; the next run
        allocates memory on the new device."""
        self._devices = {**self._devices, space: device}
        self._interpreter = Interpreter(self._program, self._devices)

    def device(self, space: str) -> AnyDevice:
        """Return the device whose name in the program (its space) is `space`."""
        return self._devices[space]

    def _lent(self, arguments: Sequence[int | None]) -> tuple[Sequence[_Lent], memoryview | None]:
        """Return the caller's memories, and the sizes for a run, from the addresses in
        `arguments`."""
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
        """Return the size in bytes of the program's workspace (its last memory), for the sizes at
        an address."""
        values = self._values(_sizes_at(sizes, len(self._program.dims)))
        return evaluate(self._program.memories[-1].nbytes, values)

    def close(self) -> None:
        for device in self._devices.values():
            device.close()

    def _values(self, sizes: Sequence[int] | None) -> dict[str, int]:
        """Return the values of all sizes of a run, by name."""
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
