"""The comparison of an accelerator's hardware, simulated by Verilator, with the instruction
simulator on the same program and memory."""

from __future__ import annotations

import dataclasses
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from farrier.errors import UsageError
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.instructions import Instruction, Module, encode
from farrier.targets.dae.program import Program
from farrier.targets.dae.rtl.emit import TOP, verilog
from farrier.targets.dae.simulator.functional import Functional
from farrier.targets.dae.simulator.timed import simulate

_ALIGNMENT = 64
_GUARD = 64  # Guard bytes between arguments, which a correct program does not change.
_MOST_CYCLES = 1 << 32
_FLAGS = (
    *("-O3", "--x-initial", "fast", "--cc", "--exe", "--build", "-CFLAGS", "-O1"),
    *("-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-UNOPTFLAT"),
)


def require_verilator() -> None:
    """Raise UsageError if Verilator is not installed."""
    if not shutil.which("verilator"):
        raise UsageError(
            "Verilator, which simulates hardware, is not installed",
            hint="apt-get install verilator g++",
        )


def build_verilator(files: Mapping[str, str], top: str, folder: Path) -> None:
    """Write Verilog `<top>.v` and harness.cpp to a folder, and build obj_dir/<top> of them. Raises
    UsageError if Verilator is missing or fails."""
    require_verilator()
    for name, text in files.items():
        (folder / name).write_text(text)
    named = ("--top-module", top, f"{top}.v", "harness.cpp", "-o", top)
    command = ["verilator", *_FLAGS, *named]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if built.returncode:
        raise UsageError(f"Verilator failed: {built.stderr.strip()[-400:]}")


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """The cycles in which an instruction begins and ends."""

    begin: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """The result of running a program: its cycles, and for each module the spans of its
    instructions."""

    cycles: int
    spans: dict[Module, list[Span]]


class Hardware:
    """The hardware of an accelerator, compiled by Verilator to an executable in a folder."""

    def __init__(self, accelerator: Accelerator, folder: Path) -> None:
        """Raise UsageError if a tool is missing or fails."""
        self.accelerator = accelerator
        self._folder = folder
        harness = (resources.files(__package__) / "harness.cpp").read_text()
        require_verilator()
        build_verilator({"core.v": verilog(accelerator), "harness.cpp": harness}, TOP, folder)

    def run(self, program: Sequence[Instruction], arguments: Sequence[memoryview]) -> Run:
        """Run a program on `arguments`, whose bytes it modifies. Raises UsageError if the program
        does not end, or writes beyond its arguments."""
        folder = self._folder
        bases, size = [], 0
        for each in arguments:
            bases.append(size)
            size += -(-(each.nbytes + _GUARD) // _ALIGNMENT) * _ALIGNMENT
        memory = np.full(size, 0xA5, np.uint8)
        for base, each in zip(bases, arguments, strict=True):
            memory[base : base + each.nbytes] = np.frombuffer(each, np.uint8)
        port = self.accelerator.port
        most = min(_MOST_CYCLES, 2 * simulate(program, self.accelerator).cycles + 10_000)
        settings = struct.pack("<4Q", most, port.latency, port.bytes, len(bases))
        (folder / "settings").write_bytes(settings)
        (folder / "bases").write_bytes(struct.pack(f"<{len(bases)}Q", *bases))
        (folder / "code").write_bytes(self._code(program))
        (folder / "memory").write_bytes(memory.tobytes())
        subprocess.run([folder / "obj_dir" / "core", folder], check=True)
        result = np.frombuffer((folder / "memory").read_bytes(), np.uint8)
        events = np.frombuffer((folder / "events").read_bytes(), np.uint64).reshape(-1, 3)
        _, cycles, how = map(int, events[-1])
        if how:
            reasons = {1: f"did not end in {most} cycles", 2: "reached beyond its memory"}
            raise UsageError(f"the hardware {reasons[how]}")
        outside = np.ones(size, bool)
        for base, each in zip(bases, arguments, strict=True):
            np.frombuffer(each, np.uint8)[...] = result[base : base + each.nbytes]
            outside[base : base + each.nbytes] = False
        if (result[outside] != 0xA5).any():
            raise UsageError("the hardware wrote beyond its arguments")
        return Run(cycles, _spans(events[:-1]))

    def _code(self, program: Sequence[Instruction]) -> bytes:
        """Return the encoded instructions, each padded to whole beats (transfers of one cycle)."""
        words = encode(program, self.accelerator)
        size, port = len(words) // max(1, len(program)), self.accelerator.port.bytes
        rows = np.frombuffer(words, np.uint8).reshape(-1, size)
        return np.pad(rows, ((0, 0), (0, -size % port))).tobytes()


def _spans(events: np.ndarray[tuple[int, int], np.dtype[np.uint64]]) -> dict[Module, list[Span]]:
    spans = {}
    for module in Module:
        mine = events[events[:, 0] == module]
        begins, ends = (mine[mine[:, 2] == end, 1] for end in (0, 1))
        spans[module] = [Span(int(b), int(e)) for b, e in zip(begins, ends, strict=True)]
    return spans


def simulated(
    program: Sequence[Instruction], accelerator: Accelerator, arguments: Sequence[memoryview]
) -> Run:
    """Run a program in the instruction simulator on `arguments`, whose bytes it modifies."""
    Functional(accelerator).run(program, arguments)
    timing = simulate(program, accelerator)
    spans: dict[Module, list[Span]] = {module: [] for module in Module}
    for event in sorted(timing.events, key=lambda each: each.number):
        spans[event.module].append(Span(event.begin, event.end))
    return Run(timing.cycles, spans)


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a program in the simulator and in hardware. `differing` is the number of
    argument bytes that differ afterwards."""

    name: str
    simulator: Run
    hardware: Run
    differing: int

    @property
    def drift(self) -> float:
        """The relative difference of the hardware's cycles from the simulator's: 0.01 if the
        hardware takes 1% more."""
        return self.hardware.cycles / self.simulator.cycles - 1

    @property
    def furthest(self) -> int:
        """The largest difference, in cycles, between the ends of the same instruction in hardware
        and in the simulator."""
        pairs = (
            abs(left.end - right.end)
            for module in Module
            for left, right in zip(
                self.simulator.spans[module], self.hardware.spans[module], strict=True
            )
        )
        return max(pairs, default=0)


def compare(hardware: Hardware, program: Program, arguments: Sequence[memoryview]) -> Comparison:
    """Run a program in hardware and in the simulator, each on a copy of the arguments, and compare
    the results. Raises UsageError if the hardware run does not end."""
    by_hardware, by_simulator = ([bytearray(each) for each in arguments] for _ in range(2))
    built = hardware.run(program.instructions, [memoryview(each) for each in by_hardware])
    expected = simulated(
        program.instructions, program.accelerator, [memoryview(each) for each in by_simulator]
    )
    differing = sum(
        int((np.frombuffer(left, np.uint8) != np.frombuffer(right, np.uint8)).sum())
        for left, right in zip(by_hardware, by_simulator, strict=True)
    )
    return Comparison(program.name, expected, built, differing)
