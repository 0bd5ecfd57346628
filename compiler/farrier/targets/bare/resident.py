"""The resident firmware of a board, which runs code that it receives over a serial line
(`firmware/board.c`)."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from pathlib import Path

from farrier.errors import UsageError
from farrier.targets.bare.boards import BOARDS, Board, Region
from farrier.targets.bare.c_compiler import FIRMWARE, compile_c, compiled
from farrier.targets.bare.cores import CORES
from farrier.targets.bare.linking import link
from farrier.targets.exporting import Exported
from farrier_device import codec
from farrier_device.boards.board import Description
from farrier_device.boards.choice import LAUNCH, PROGRAM
from farrier_device.describe import MachineDescription

RESIDENT_BYTES = 16 << 10
"""The bytes at the end of the RAM that the program keeps: 4 KB of frames, then the stack of what it
runs, which take less than 4 KB."""


def firmware(name: str, machine: MachineDescription) -> Exported:
    """Return the resident firmware of a board as an ELF file and, for an emulated board, the qemu
    command that starts it. Raises UsageError for a board without such a firmware."""
    board = BOARDS[name]
    if board.line is None:
        boards = ", ".join(each for each, there in BOARDS.items() if there.line is not None)
        raise UsageError(
            f"{name} has no program for an agent yet", hint=f"boards with one: {boards}"
        )
    files = {PROGRAM: _image(name, _description(board, machine))}
    emulator = board.emulator
    if emulator is None:
        return Exported(files, (f"Flash {PROGRAM}, then: farrier-device --serial PORT",))
    words = ["-machine", emulator.machine, *emulator.options, "-icount", f"shift={emulator.shift}"]
    launch = {"program": emulator.program, "package": emulator.package, "words": words}
    return Exported(files | {LAUNCH: json.dumps(launch).encode()})


def _description(board: Board, machine: MachineDescription) -> str:
    """Return the JSON text with which the firmware describes its board: the machine, and the
    nanoseconds of a tick. On an emulated board, ticks count instructions."""
    assert board.line is not None
    emulator = board.emulator
    ns, counts = 1e6 / board.line.khz, "cycles"
    if emulator is not None:
        hertz = CORES[board.core].figures["hertz"]
        ns, counts = emulator.tick_ns / (1 << emulator.shift) * 1e9 / hertz, "instructions"
        machine = dataclasses.replace(machine, emulated=True)
    described = Description(machine, board.core, ns, counts)
    return json.dumps(codec.encode(described), separators=(",", ":"))


@functools.cache
def _image(name: str, description: str) -> bytes:
    board = BOARDS[name]
    core, line, ram = CORES[board.core], board.line, board.ram
    assert line is not None
    macros = {"CORE_KHZ": line.khz}
    if line.timer:
        macros |= {"MTIMER": line.timer, "MTIMER_KHZ": line.timer_khz}
    if board.emulator and board.emulator.counter:
        macros["COUNTER"] = board.emulator.counter
    free = ram.nbytes - RESIDENT_BYTES
    own = Region(ram.address + free, RESIDENT_BYTES)
    lines = {"LINE": int(line.uart), "UART": f"{line.address:#x}u", "FREE_BYTES": f"{free:#x}u"}
    lines |= {"FREE_ADDRESS": f"{ram.address:#x}u", "DESCRIPTION": json.dumps(description)}
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        folder = Path(at)
        defined = "".join(f"#define {word} {value}\n" for word, value in lines.items())
        (folder / "board.h").write_text("#pragma once\n" + defined)
        sources = ("start.c", "frames.c", "resident.c", "board.c")
        for source in sources:
            compile_c(folder, core, FIRMWARE / source, macros)
        (folder / "support.o").write_bytes(compiled(board.core, "support.c"))
        objects = [f"{Path(source).stem}.o" for source in sources]
        placed = dataclasses.replace(board, ram=own)
        return link(folder, placed, [*objects, "support.o"])
