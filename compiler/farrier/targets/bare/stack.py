"""The stack of a model, measured in a run on the emulated board that has its core."""

from __future__ import annotations

import shutil

from farrier.errors import CompilerError
from farrier.targets.bare.backend import BareTarget
from farrier.targets.bare.boards import emulated_board
from farrier.targets.bare.cores import CORES
from farrier.targets.bare.emulation import BoardError, EmulatedBoard, Outcome
from farrier.targets.bare.linking import MODEL, library
from farrier.targets.bare.part import BarePart

_MOST_BYTES = 16 << 10  # With this much RAM left, the stack need not be measured.


def run_of(part: BarePart, joined: bytes, name: str = MODEL) -> Outcome | None:
    """Return the outcome of a run whose inputs are zero; None if the emulator is not installed.
    `joined` is the model's library, in which the function `NAME_run` runs the model. Raises
    CompilerError."""
    emulator = emulated_board(CORES[part.core]).emulator
    assert emulator is not None
    if shutil.which(emulator.program) is None:
        return None
    try:
        return EmulatedBoard.of_library(part, joined, name).run([bytes(n) for n in part.inputs])
    except BoardError as error:
        raise CompilerError(f"the stack of the model cannot be measured: {error}") from None


def stack_bytes(part: BarePart, content: bytes, params: bytes, target: BareTarget) -> int:
    """Return the bytes of stack that a model takes if the RAM of its board may be too small for
    them; 0 if it is large enough for any stack, if not even the arena fits, or if the emulator is
    not installed. `content` is the model's object file. Raises CompilerError."""
    left = target.ram_bytes - part.arena.nbytes
    if not 0 <= left < _MOST_BYTES:
        return 0
    outcome = run_of(part, library(part, content, params))
    return 0 if outcome is None else outcome.stack_bytes
