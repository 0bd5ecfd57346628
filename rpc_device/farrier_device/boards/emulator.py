"""A line to a board that qemu emulates: the emulated board's UART."""

from __future__ import annotations

import dataclasses
import json
import select
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farrier_device.boards import emulator_process
from farrier_device.boards.line import LineGoneError
from farrier_device.sandbox import Limits, SandboxedProcess, SandboxError

_WRITE_S = 10.0  # For the emulator to take more bytes.


@dataclasses.dataclass(frozen=True, slots=True)
class Emulation:
    """An emulated board: the qemu executable, the Debian package that contains it, its command-line
    arguments, and the file of the program that runs on the board."""

    board: str
    program: str
    package: str
    words: tuple[str, ...]
    firmware: Path

    @classmethod
    def of_json(cls, board: str, raw: Mapping[str, Any], firmware: Path) -> Emulation:
        return cls(board, raw["program"], raw["package"], tuple(raw["words"]), firmware)


class EmulatorLine:
    """A `Line` to an emulator. Each reset starts the emulator again, and it dies with the thread
    that started it."""

    bytes_a_second = float("inf")

    def __init__(self, emulation: Emulation, limits: Limits, required: str = "") -> None:
        """Start the emulator. Raises SandboxError if it cannot be started, or not with the required
        layers of the sandbox."""
        self.name = f"qemu {emulation.board}"
        self._emulation = emulation
        self._limits = limits
        self._required = required
        self._process: SandboxedProcess | None = None
        self.level = ""
        self._start()

    def _start(self) -> None:
        qemu = shutil.which(self._emulation.program)
        if qemu is None:
            raise SandboxError(
                f"this machine has no emulator of {self._emulation.board}; install Debian's "
                f"package {self._emulation.package}"
            )
        words = [qemu, json.dumps(self._emulation.words), str(self._emulation.firmware.absolute())]
        self._process = SandboxedProcess(
            emulator_process.__name__,
            self._limits,
            name=self.name,
            required=self._required,
            words=words,
        )
        self._process.sock.setblocking(False)
        self.level = self._process.level

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            sock = self._sock()
            if not select.select((), (sock,), (), _WRITE_S)[1]:
                return  # Nobody takes the bytes: the answer that does not come says so.
            try:
                view = view[sock.send(view) :]
            except OSError:
                raise self._gone() from None

    def read(self, within_s: float) -> bytes:
        sock = self._sock()
        if not select.select((sock,), (), (), within_s)[0]:
            return b""
        try:
            data: bytes = sock.recv(1 << 16)
        except BlockingIOError:
            return b""
        except OSError:
            raise self._gone() from None
        if not data:
            raise self._gone()
        return data

    def reset(self) -> None:
        self.close()
        try:
            self._start()
        except SandboxError as error:
            raise LineGoneError(str(error)) from None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _sock(self) -> Any:
        if self._process is None:
            raise LineGoneError(f"{self.name} has ended")
        return self._process.sock

    def _gone(self) -> LineGoneError:
        assert self._process is not None
        self._process.wait(1.0)
        said = self._process.said()
        self.close()
        return LineGoneError(f"{self.name} has ended: {said.splitlines()[-1]}")
