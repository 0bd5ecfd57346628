"""The simulator as a measurable device: its memory is host memory, and a launch simulates a
program."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from farrier.targets.dae.program import Program, ProgramError
from farrier.targets.dae.simulator.functional import Functional
from farrier.targets.dae.simulator.timed import Timing, simulate
from farrier.targets.dae.tokens import TokenError, prove
from farrier_device.devices.device import Code, DeviceError, Ticks
from farrier_device.devices.host_memory import HostMemory
from farrier_device.measurement import Launch
from farrier_device.memory import Buffer

SPACE = "dae"
PROGRAM = "dae"  # The kind of code objects that are the text of a `Program`.
LIBRARY = "dae-library"  # The kind of code objects that are a `device_library.DeviceLibrary`.
_SUFFIX = "_0"


class Bound(NamedTuple):
    """A program bound to its arguments, ready to launch."""

    name: str
    program: Program
    arguments: Sequence[memoryview]


_observers: list[Callable[[Bound], None]] = []


@contextlib.contextmanager
def observing(observer: Callable[[Bound], None]) -> Iterator[None]:
    """Within this context, call `observer` before each launch on any simulator of this process."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


class SimulatedDevice(HostMemory[Bound]):
    """A simulated accelerator as a device. A tick is a cycle."""

    def __init__(self) -> None:
        self._programs: dict[str, Program] = {}
        self._timings: dict[str, Timing] = {}
        self._functional: Functional | None = None
        self.cycles = 0  # The cycles of all launches.

    @property
    def name(self) -> str:
        """The name of the accelerator."""
        names = {program.accelerator.name for program in self._programs.values()}
        return f"simulated {'/'.join(sorted(names))}".rstrip()

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        self.unload()
        for described, file in code:
            text = os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")
            self._add(str(described.kind), text)

    def load_modules(self, modules: Mapping[str, str]) -> None:
        """Load programs, given by kernel name. Raises DeviceError."""
        self.unload()
        for name, text in modules.items():
            self._add(name, text)

    def _add(self, name: str, text: str) -> None:
        try:
            program = Program.of_text(text)
            prove(program.instructions, program.accelerator, program.arguments)
        except (ProgramError, TokenError) as error:
            raise DeviceError(f"{name}: {error}") from None
        self._programs[program.name] = program

    def unload(self) -> None:
        self._programs, self._timings = {}, {}
        self._functional = None

    def bind(self, launch: Launch, places: Sequence[tuple[Buffer, int]]) -> Bound:
        name = launch.symbol.removesuffix(_SUFFIX)
        if name not in self._programs:
            raise DeviceError(f"there is no program {name}")
        program = self._programs[name]
        sizes = program.arguments
        if len(places) != len(sizes):
            raise DeviceError(f"{name} takes {len(sizes)} arguments, and not {len(places)}")
        views = []
        for (memory, offset), nbytes in zip(places, sizes, strict=True):
            view = memory.view[offset : offset + nbytes]
            if view.nbytes < nbytes:
                raise DeviceError(f"an argument of {name} has {nbytes} bytes")
            views.append(view)
        return Bound(name, program, views)

    def launch(self, bound: Bound) -> None:
        for observer in _observers:
            observer(bound)
        accelerator = bound.program.accelerator
        if self._functional is None or self._functional.accelerator != accelerator:
            self._functional = Functional(accelerator)
        self._functional.run(bound.program.instructions, bound.arguments)
        self.cycles += self._timing(bound).cycles

    def synchronize(self) -> int:
        return 0

    def _timing(self, bound: Bound) -> Timing:
        if bound.name not in self._timings:
            program = bound.program
            self._timings[bound.name] = simulate(program.instructions, program.accelerator)
        return self._timings[bound.name]

    def time(
        self, steps: Sequence[Bound], repeats: int, cold: Sequence[tuple[Buffer, int]]
    ) -> Ticks:
        """Run each step once, and return its number of cycles `repeats` times. Repeated runs would
        take the same number of cycles."""
        for step in steps:
            self.launch(step)
        self._mhz = steps[0].program.accelerator.mhz
        return [[self._timing(step).cycles] * repeats for step in steps]

    def ns_of(self, ticks: Sequence[int]) -> list[int]:
        return [max(1, round(1000 * tick / self._mhz)) for tick in ticks]

    def close(self) -> None:
        self.unload()
