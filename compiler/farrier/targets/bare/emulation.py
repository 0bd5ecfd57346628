"""Runs of a model on an emulated board (qemu)."""

from __future__ import annotations

import dataclasses
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from farrier.targets.bare.boards import BOARDS, Board, emulated_board
from farrier.targets.bare.cores import CORES
from farrier.targets.bare.linking import MODEL, check_image, image_program, library
from farrier.targets.bare.part import BarePart
from farrier_device.boards.image import BoardImage

# The return code, ticks and bytes of stack, as `check.c` writes them.
_RESULT = struct.Struct("<iII")
_TIMEOUT_S = 600.0


class BoardError(Exception):
    """The error of a run on an emulated board that did not finish."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: the entry point's return code, the instructions executed, the stack
    used, and the outputs."""

    code: int
    instructions: int
    stack_bytes: int
    outputs: tuple[bytes, ...]


class EmulatedBoard:
    """A model in the flash of an emulated board. Each run starts from a reset."""

    def __init__(self, board: Board, program: bytes, returned: Sequence[int]) -> None:
        """Prepare runs of `program`, an ELF file that contains `firmware/check.c`. `returned` has
        the size in bytes of each memory area that the program writes to the file of outputs."""
        self.board = board
        self.instructions = 0  # The instructions executed by the last run.
        self._program = program
        self._returned = returned

    @classmethod
    def of_library(cls, part: BarePart, joined: bytes, name: str = MODEL) -> EmulatedBoard:
        """Return an emulated board whose program calls the model's library `joined` by its function
        `NAME_run`. Raises CompilerError."""
        board = emulated_board(CORES[part.core])
        return cls(board, check_image(part, joined, board, name), part.outputs)

    @classmethod
    def of(cls, part: BarePart, content: bytes, params: bytes) -> EmulatedBoard:
        """Return an emulated board with a model. `content` is the object file that the compiler has
        produced for the model, and `params` its packed parameters. Raises CompilerError."""
        return cls.of_library(part, library(part, content, params))

    @classmethod
    def of_image(cls, image: BoardImage, symbol: str, sizes: Sequence[int]) -> EmulatedBoard:
        """Return a board that calls the entry point `symbol` of an image. The arguments of the call
        are pointers to separate areas of memory, with the sizes in bytes in `sizes`. A run returns
        the content of every area after the call. Raises CompilerError."""
        board = emulated_board(CORES[image.header.core])
        return cls(board, image_program(image, symbol, tuple(sizes), board), sizes)

    @property
    def name(self) -> str:
        """The name of the board."""
        return name_of(self.board)

    def run(self, inputs: Sequence[bytes | memoryview]) -> Outcome:
        """Run the model once, and return its outcome. Raises BoardError."""
        emulator = self.board.emulator
        assert emulator is not None
        with tempfile.TemporaryDirectory(prefix="farrier-board-") as at:
            folder = Path(at)
            (folder / "inputs").write_bytes(b"".join(inputs))
            (folder / "image.elf").write_bytes(self._program)
            command = [emulator.program, "-machine", emulator.machine, *emulator.options]
            command += ["-semihosting-config", "enable=on,target=native", "-nographic"]
            command += ["-serial", "null", "-monitor", "null", "-icount", f"shift={emulator.shift}"]
            try:
                done = subprocess.run(
                    [*command, "-kernel", "image.elf"],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=_TIMEOUT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise BoardError(f"{self.name} did not answer within {_TIMEOUT_S:g} s") from None
            if done.returncode:
                said = (done.stdout + done.stderr).strip()
                raise BoardError(f"{self.name} ended with code {done.returncode}: {said}")
            return self._outcome((folder / "outputs").read_bytes())

    def _outcome(self, data: bytes) -> Outcome:
        assert self.board.emulator is not None
        code, ticks, stack_bytes = _RESULT.unpack_from(data)
        at, outputs = _RESULT.size, []
        for nbytes in self._returned:
            outputs.append(data[at : at + nbytes])
            at += nbytes
        self.instructions = self.board.emulator.instructions(ticks)
        return Outcome(code, self.instructions, stack_bytes, tuple(outputs))


def name_of(board: Board) -> str:
    """Return the name of a board."""
    return next(name for name, each in BOARDS.items() if each is board)
