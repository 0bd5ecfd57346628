"""The host as the driver of a device. A launch stands for a run of a program of a `DeviceLibrary`,
or for a single call or launch within that program, which is timed during a run of the whole
program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from farrier_device.device_library import CALL, DeviceLibrary, LibraryError
from farrier_device.devices.device import AnyDevice, Code, Device, DeviceError, Ticks
from farrier_device.devices.host import HostDevice
from farrier_device.devices.host_memory import HostMemory, WallClocked
from farrier_device.interpreter import Interpreter
from farrier_device.measurement import Launch
from farrier_device.memory import Buffer
from farrier_device.program import HOST, Program


class _Part(NamedTuple):
    """The part of a host buffer that starts at an offset: its address, and a view of its bytes."""

    address: int
    view: memoryview

    @classmethod
    def of(cls, memory: Buffer, offset: int) -> _Part:
        return cls(memory.address + offset, memory.view[offset:])


class _Run(NamedTuple):
    """A bound launch: a program with its memories and sizes. If `part` is set, only the call with
    this number is meant, in the order of the program's text."""

    interpreter: Interpreter
    memories: Sequence[_Part]
    sizes: memoryview | None
    part: int | None = None  # The number of the call that is meant, in the order of the text.


class Driven(Device, Protocol):  # type: ignore[type-arg]
    """A device whose kernels come in modules of text, such as PTX or WGSL."""

    def load_modules(self, modules: Mapping[str, str]) -> None:
        """Load modules, by name, in place of the modules loaded before. Raises DeviceError."""
        ...


D = TypeVar("D", bound=Driven)


class DrivingHost(HostMemory[_Run], WallClocked[Buffer, _Run], Generic[D]):
    """This machine with a device that it drives; `space` is the name of the device's memory in
    programs. Arguments are in the host's memory; the programs copy them to and from the device."""

    def __init__(self, space: str, device: D) -> None:
        self.device = device
        self._space = space
        self._devices: dict[str, AnyDevice] = {space: device}
        self._library: DeviceLibrary | None = None
        self._run: _Run | None = None  # The last one: a model has much memory.
        self._run_of: tuple[str, list[tuple[Buffer, int]]] | None = None
        self._code = 0

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        self.unload()
        if len(code) != 1:
            raise DeviceError(f"a device loads one library, not {len(code)} code objects")
        [(_, file)] = code
        try:
            self._library = DeviceLibrary(os.pread(file, os.fstat(file).st_size, 0))
        except LibraryError as error:
            raise DeviceError(str(error)) from None
        self.device.load_modules(self._library.modules)
        if self._library.host:
            host = self._devices[HOST] = HostDevice()
            host.load_library(self._library.host, threads, pin)

    def unload(self) -> None:
        self._run = self._run_of = None
        self.device.unload()
        if host := self._devices.pop(HOST, None):
            host.close()
        self._library = None

    def bind(self, launch: Launch, places: Sequence[tuple[Buffer, int]]) -> _Run:
        name, _, number = launch.symbol.partition(CALL)
        run_of = name, [*places]
        if self._run is None or self._run_of != run_of:
            parts = [_Part.of(*place) for place in places]
            self._run, self._run_of = self._begun(name, parts), run_of
        if not number:
            return self._run
        if not number.isdigit() or int(number) >= self._run.interpreter.launches:
            raise DeviceError(f"the program {name} has no call {number}")
        return self._run._replace(part=int(number))

    def _begun(self, name: str, memories: Sequence[_Part]) -> _Run:
        program = self._program(name)
        count = len(program.memories)
        sizes = memories[count].view.cast("q") if len(memories) > count else None
        return _Run(Interpreter(program, self._devices), memories[:count], sizes)

    def _program(self, name: str) -> Program:
        assert self._library is not None, "no code is loaded"
        try:
            return self._library.program(name)
        except LibraryError as error:
            raise DeviceError(str(error)) from None

    def time(
        self, steps: Sequence[_Run], repeats: int, cold: Sequence[tuple[Buffer, int]]
    ) -> Ticks:
        first = steps[0]
        if first.part is None:
            return super().time(steps, repeats, cold)
        each: Ticks = [[] for _ in steps]
        for _ in range(repeats):
            code, times = first.interpreter.run_timed(first.memories, first.sizes)
            if code:
                raise DeviceError(f"returned code {code}")
            for step, samples in zip(steps, each, strict=True):
                assert step.part is not None
                ran = times[step.part]
                samples.append(sum(ran) // len(ran) if ran else 0)
        return each

    def launch(self, bound: _Run) -> None:
        code = bound.interpreter.run(bound.memories, bound.sizes)
        self._code = self._code or code

    def synchronize(self) -> int:
        code, self._code = self._code, 0
        return code

    def close(self) -> None:
        self.unload()
        self.device.close()
