"""The selection of a board by an agent's options, and the resident program of an emulated board."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from farrier_device.boards.emulator import Emulation, EmulatorLine
from farrier_device.boards.line import Line, LineGoneError
from farrier_device.boards.serial_line import SerialLine
from farrier_device.sandbox import Limits

PROGRAM, LAUNCH = "agent.elf", "emulator.json"
"""The files that `farrier firmware` writes: the program, and how to emulate its board."""
ON_BOARD = "board"
"""The isolation of code that runs on a board of its own."""
_BUILD_S = 300.0  # The compiler takes seconds.


@dataclasses.dataclass(frozen=True, slots=True)
class BoardChoice:
    """The board that the options of an agent select: on the serial port `serial`, or the board
    `qemu` that qemu emulates. If `board` is not empty, the board on the serial port has to report
    that name."""

    serial: str = ""
    baud: int = 115200
    board: str = ""
    qemu: str = ""
    firmware: Path | None = None

    @property
    def name(self) -> str:
        """The name that the board has to report; "" if any name is accepted."""
        return self.qemu or self.board

    def opener(self, state: Path, required: str) -> Callable[[], Line]:
        """Return a function that opens the line to the board. For an emulated board, its resident
        program is read from `firmware` or built below the folder `state`, and `required` names the
        sandbox layers that the emulator needs. Raises LineGoneError if that program is missing and
        cannot be built."""
        if self.serial:
            return functools.partial(SerialLine, self.serial, self.baud)
        folder = self.firmware or _built(self.qemu, state / "firmware")
        try:
            launch = json.loads((folder / LAUNCH).read_text())
            emulation = Emulation.of_json(self.qemu, launch, folder / PROGRAM)
        except OSError as error:
            raise LineGoneError(
                f"cannot read the program of {self.qemu} in {folder}: {error.strerror}; write "
                f"it with `farrier firmware {self.qemu} -o {folder}`"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise LineGoneError(
                f"QEMU cannot emulate the board {self.qemu}; use --serial with the board itself"
            ) from None
        return functools.partial(EmulatorLine, emulation, Limits.of_machine(), required)


def isolation(line: Line) -> str:
    """Return the isolation level of code on the board at the other end of a line."""
    return line.level if isinstance(line, EmulatorLine) else ON_BOARD


def _built(board: str, folder: Path) -> Path:
    """Write the resident program of an emulated board to `folder` by a call of the compiler, and
    return the folder. Raises LineGoneError if the compiler is not installed here or fails."""
    command = [sys.executable, "-m", "farrier.cli", "firmware", board, "-o", str(folder)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_BUILD_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LineGoneError(f"cannot build the program of {board}: {error}") from None
    if done.returncode:
        said = " ".join(done.stderr.split()) or "no reason"
        if "No module named" in said:
            said = (
                "the compiler, which writes the program, is not installed here; run `farrier "
                f"firmware {board} -o FOLDER` on another machine, copy the folder here, and "
                "start with --firmware FOLDER"
            )
        raise LineGoneError(f"cannot write the program of {board}: {said.removeprefix('error: ')}")
    return folder
