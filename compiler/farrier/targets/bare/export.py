"""The export of a model as a C library, or as a program for a board."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from farrier.errors import UsageError
from farrier.llvm import zig
from farrier.targets.bare.boards import BOARDS, Board, emulated_board
from farrier.targets.bare.cores import CORES
from farrier.targets.bare.elf import sections_of
from farrier.targets.bare.emulation import Outcome, name_of
from farrier.targets.bare.linking import check_image, library
from farrier.targets.bare.part import BarePart
from farrier.targets.bare.stack import run_of
from farrier.targets.bare.uf2 import uf2_of
from farrier.targets.c_header import header, identifier
from farrier.targets.exporting import Exportable, Exported

_EXAMPLE = """\
/* Build it with any C compiler for {core}, as in:
     arm-none-eabi-gcc -mcpu={core} -mthumb -O2 main.c lib{name}.a -T board.ld … */
#include "{name}.h"

static uint8_t arena[{upper}_ARENA_BYTES] __attribute__((aligned({upper}_ARENA_ALIGNMENT)));

int main(void) {{
  /* Fill the inputs here, then read the outputs: {name}.h has a function for each. */
  return {name}_run(arena);
}}
"""

_DEBUGGED = (
    "the program reads its inputs and writes its outputs through a debugger that serves semihosting"
)


def export(exported: Exportable, form: str, board: str) -> Exported:
    """Return the exported files of a model, and notes about the memory that it uses. Raises
    UsageError if the model was compiled for another core than the board's, or does not fit the
    board."""
    word, part = identifier(exported.name), BarePart.of_json(exported.code.backend)
    if form not in ("c", "elf", "uf2"):
        raise UsageError(f"there is no form {form!r}", hint="--format is c, elf or uf2")
    named = None if form == "c" else _board(part, board)
    if form == "uf2" and named is not None and named.disk is None:
        disks = [each for each, there in BOARDS.items() if there.disk is not None]
        raise UsageError(
            f"{board} takes no UF2 file",
            hint=f"--format elf; boards that take one: {', '.join(disks)}",
        )
    [code] = exported.code.objects
    joined = library(part, code.content, bytes(exported.params), word)
    outcome = run_of(part, joined, word)
    if named is not None and outcome is not None:
        _check_stack(part, outcome.stack_bytes, board)
    notes = (*_memory(part, joined, outcome), *(f"patches: {note}" for note in part.notes))
    if named is not None:
        program = check_image(part, joined, named, word)
        if form == "uf2" and named.disk is not None:
            blocks = uf2_of(program, named.disk.family)
            return Exported({f"{word}.uf2": blocks}, (*notes, _DEBUGGED))
        return Exported({f"{word}.elf": program}, notes)
    files = {
        f"lib{word}.a": _archive(joined, word),
        f"{word}.h": header(word, exported.manifest, part.arena, part.core).encode(),
        "main.c": _EXAMPLE.format(name=word, upper=word.upper(), core=part.core).encode(),
    }
    return Exported(files, notes)


def _memory(part: BarePart, joined: bytes, outcome: Outcome | None) -> Iterator[str]:
    """Yield notes about the flash, RAM and stack that a model uses. `joined` is the model's
    library, and `outcome` that of a run on an emulated board, if the emulator is installed."""
    sections = sections_of(joined)
    used = sections.flash_bytes - part.params
    yield f"flash: {sections.flash_bytes:,} bytes, {part.params:,} of them weights, {used:,} code"
    io = sum((*part.inputs, *part.outputs))
    yield (
        f"RAM: {part.arena.nbytes + sections.ram_bytes:,} bytes of arena, {io:,} of them inputs "
        f"and outputs, {part.workspace:,} workspace"
    )
    board = emulated_board(CORES[part.core])
    assert board.emulator is not None
    if outcome is None:
        yield f"stack: not measured, as Debian's {board.emulator.package} is not installed"
        return
    yield (
        f"stack: {outcome.stack_bytes:,} bytes, and {outcome.instructions:,} instructions a run, "
        f"measured under qemu ({name_of(board)}); instructions are not cycles"
    )


def _board(part: BarePart, name: str) -> Board:
    """Return the board `name`, on which a program shall run the model. Raises UsageError if no
    board has the name, if it has another core than the one for which the model was compiled, or if
    its RAM is too small for the model's inputs, outputs and workspace."""
    core = part.core
    fitting = [each for each, board in BOARDS.items() if board.core == core]
    if name not in fitting:
        raise UsageError(
            f"the model is compiled for {core}, and {name or 'no board'} is named",
            hint=f"--board is one of {', '.join(fitting)}",
        )
    board: Board = BOARDS[name]
    needed = part.arena.nbytes
    if needed > board.ram.nbytes:
        raise UsageError(
            f"the model needs {needed:,} bytes of RAM, and {name} has {board.ram.nbytes:,}",
            hint="compile it with --target " + name + ", which says what does not fit",
        )
    return board


def _check_stack(part: BarePart, stack_bytes: int, name: str) -> None:
    """Raise UsageError if a board's RAM is too small for a model together with its stack."""
    needed, there = part.arena.nbytes + stack_bytes, BOARDS[name].ram.nbytes
    if needed > there:
        raise UsageError(
            f"the model needs {needed:,} bytes of RAM, {stack_bytes:,} of them for the stack, and "
            f"{name} has {there:,}",
            hint=f"compile it with --target {name}, which says what does not fit",
        )


def _archive(content: bytes, name: str) -> bytes:
    """Return a static library (`lib….a`) that contains one object file."""
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        folder = Path(at)
        (folder / f"{name}.o").write_bytes(content)
        zig.run(["ar", "rcsD", "library.a", f"{name}.o"], folder, "archiving failed")
        return (folder / "library.a").read_bytes()
