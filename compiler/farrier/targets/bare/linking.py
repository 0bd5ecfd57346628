"""A model's object, its parameters and C around them: a library, and an image for a board."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from farrier.errors import CompilerError
from farrier.llvm import zig
from farrier.targets.bare.boards import Board, Region
from farrier.targets.bare.cores import CORES, Core
from farrier.targets.bare.elf import undefined_symbols
from farrier.targets.bare.part import BarePart
from farrier.targets.c_header import AROUND_ENTRY

FIRMWARE = Path(__file__).parent / "firmware"
# A small program of its own: no library, each function in a section that is left out if nobody
# calls it. Loops stay loops, as a call of `memcpy` within `memcpy` would never end.
_C = (
    *("-std=c11", "-O2", "-ffreestanding", "-fno-builtin", "-nostdlib", "-fno-sanitize=all"),
    *("-ffunction-sections", "-fdata-sections", "-fno-stack-protector", "-fno-unwind-tables"),
    *("-fno-asynchronous-unwind-tables", "-g0"),
)


def glue(name: str, part: BarePart) -> str:
    """Return the C function `int32_t NAME_run(void *arena)`, which calls the model's entry point:
    slots of 64 bits with the addresses of inputs, outputs, parameters, workspace and sizes."""
    sizes = part.arena.offsets[-2]
    lines = ",\n    ".join(part.arena.slots())
    return f"""\
#include <stdint.h>

{AROUND_ENTRY}
extern entry_point {part.entry};

int32_t {name}_run(void *arena) {{
  uint8_t *const base = arena;
  for (int i = 0; i < {8 * part.sizes}; i++) base[{sizes} + i] = 0;
  const uint64_t arguments[] = {{
    {lines}}};
  return {part.entry}(arguments, &pool);
}}
"""


MODEL = "model"
"""The name of a model that nobody gave another."""


@functools.lru_cache(maxsize=64)  # A race runs the same code again and again.
def library(part: BarePart, content: bytes, params: bytes, name: str = MODEL) -> bytes:
    """Return one object that needs nothing else and has `NAME_run`: the model, its parameters, and
    what its code calls without naming it."""
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        return _library(Path(at), name, part, content, params)


def _library(folder: Path, name: str, part: BarePart, content: bytes, params: bytes) -> bytes:
    core = CORES[part.core]
    (folder / "kernels.o").write_bytes(content)
    (folder / "params.bin").write_bytes(params)
    (folder / "glue.c").write_text(glue(name, part))
    _compile(folder, core, "glue.c")
    (folder / "support.o").write_bytes(_compiled(part.core, "support.c"))
    words = ["ld.lld", "-r", "--gc-sections", "-u", f"{name}_run", "-o", "library.o"]
    words += ["glue.o", "kernels.o", "support.o"]
    zig.run(words, folder, "linking failed")
    joined = (folder / "library.o").read_bytes()
    if not undefined_symbols(joined):
        return joined
    (folder / "builtins.o").write_bytes(_builtins(core.c_target, core.c_cpu))
    zig.run([*words, "builtins.o"], folder, "linking failed")
    joined = (folder / "library.o").read_bytes()
    if lacks := undefined_symbols(joined):
        raise CompilerError(
            f"code for {part.core} calls functions that no microcontroller has: {', '.join(lacks)}"
        )
    return joined


@functools.cache
def _builtins(target: str, cpu: str) -> bytes:
    """Return zig's functions for the instructions that a core lacks, such as those of floats. A
    link takes the called ones."""
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        words: list[str | Path] = ["build-obj"]
        words += [zig.home() / "lib" / "compiler_rt.zig", "-femit-bin=builtins.o"]
        words += ["-target", target, f"-mcpu={cpu}"]
        words += ["-OReleaseSmall", "-ffunction-sections", "-fstrip"]
        zig.run(words, Path(at), "the functions of floats do not compile")
        return (Path(at) / "builtins.o").read_bytes()


@functools.lru_cache(maxsize=64)  # A race runs the same code again and again.
def check_image(
    part: BarePart, joined: bytes, board: Board, name: str = MODEL, *, returns_inputs: bool = False
) -> bytes:
    """Return an ELF file with which a board runs a model once (`firmware/check.c`), whose library
    has `NAME_run`. It writes the outputs, or the inputs as the model has left them."""
    core = CORES[part.core]
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        folder = Path(at)
        (folder / "library.o").write_bytes(joined)
        (folder / "model.h").write_text(_check_header(part, name, returns_inputs))
        emulator = board.emulator
        counter = {"COUNTER": emulator.counter} if emulator and emulator.counter else {}
        (folder / "start.o").write_bytes(_compiled(part.core, "start.c"))
        _compile(folder, core, FIRMWARE / "check.c", counter)
        return _linked(folder, board, ("start.o", "check.o", "library.o"))


@functools.cache
def _compiled(core: str, source: str) -> bytes:
    """Return the object of a file that is the same for all models."""
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        folder = Path(at)
        _compile(folder, CORES[core], FIRMWARE / source)
        return (folder / source).with_suffix(".o").read_bytes()


def _check_header(part: BarePart, name: str, returns_inputs: bool) -> str:
    """The header with which `firmware/check.c` calls a model, whatever it is."""
    offsets = part.arena.offsets
    split = 0 if returns_inputs else len(part.inputs)
    returned = part.inputs if returns_inputs else part.outputs

    def calls(offsets: Sequence[int], sizes: Sequence[int]) -> str:
        pairs = zip(offsets, sizes, strict=False)
        return " ".join(f"CALL({offset}, {nbytes})" for offset, nbytes in pairs)

    return f"""\
#pragma once
#include <stdint.h>
#define MODEL_ARENA_BYTES {part.arena.nbytes}
#define MODEL_INPUTS(CALL) {calls(offsets, part.inputs)}
#define MODEL_OUTPUTS(CALL) {calls(offsets[split:], returned)}
int32_t {name}_run(void *arena);
#define MODEL_RUN {name}_run
"""


def _compile(
    folder: Path, core: Core, source: str | Path, macros: Mapping[str, int] | None = None
) -> None:
    """Compile a C file to an object of its name, in the folder."""
    target = ["cc", "-target", core.c_target, f"-mcpu={core.c_cpu}"]
    if core.abi:
        target.append(f"-mabi={core.abi}")
    defined = [f"-D{name}={value}" for name, value in (macros or {}).items()]
    output = Path(source).with_suffix(".o").name
    words = [*target, *_C, "-I.", f"-I{FIRMWARE}", *defined, "-c", source, "-o", output]
    zig.run(words, folder, f"{Path(source).name} does not compile")


def _linked(folder: Path, board: Board, objects: Sequence[str]) -> bytes:
    """Link objects to an image that lies where a board's memories are."""
    (folder / "board.ld").write_text(linker_script(board))
    words = ["ld.lld", "-T", "board.ld", "--gc-sections", "--no-undefined", *objects]
    zig.run([*words, "-o", "image.elf"], folder, "linking failed")
    return (folder / "image.elf").read_bytes()


def linker_script(board: Board) -> str:
    """Return the script by which a linker places a program in a board's memories."""
    vectors = Region(board.vectors, 4096) if board.vectors is not None else board.flash
    memories = {"FLASH (rx)": board.flash, "RAM (rwx)": board.ram}
    place = "FLASH"
    if board.vectors is not None:
        memories["VECTORS (rx)"] = vectors
        place = "VECTORS"
    regions = "\n".join(
        f"  {name} : ORIGIN = {region.address:#x}, LENGTH = {region.nbytes:#x}"
        for name, region in memories.items()
    )
    return f"""\
ENTRY(reset)
MEMORY {{
{regions}
}}
SECTIONS {{
  .vectors : {{ KEEP(*(.vectors)) }} > {place}
  .text : {{ *(.text .text.*) *(.rodata .rodata.* .srodata .srodata.*) }} > FLASH
  .ARM.exidx : {{ *(.ARM.exidx .ARM.exidx.*) }} > FLASH
  .data : ALIGN(8) {{
    data_begin = .;
    *(.data .data.* .sdata .sdata.*)
    data_end = .;
  }} > RAM AT> FLASH
  data_from = LOADADDR(.data);
  __global_pointer$ = data_begin + 0x800;
  .bss (NOLOAD) : ALIGN(64) {{
    bss_begin = .;
    *(.bss .bss.* .sbss .sbss.* COMMON)
    bss_end = .;
  }} > RAM
  stack_top = ORIGIN(RAM) + LENGTH(RAM);
  /DISCARD/ : {{ *(.eh_frame) *(.comment) }}
}}
"""
