"""The linker of a model's object, its parameters and C glue code: to a library, and to an ELF file
for a board."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from farrier.errors import CompilerError
from farrier.llvm import zig
from farrier.targets.bare.boards import Board, Disk, Region
from farrier.targets.bare.c_compiler import FIRMWARE, compile_c, compiled
from farrier.targets.bare.cores import CORES
from farrier.targets.bare.elf import undefined_symbols
from farrier.targets.bare.part import BarePart
from farrier.targets.bare.second_stage import STAGE_BYTES, second_stage
from farrier.targets.c_header import AROUND_ENTRY
from farrier_device.boards.board import ALIGNMENT
from farrier_device.boards.image import BoardImage, ImageError


def glue(name: str, part: BarePart) -> str:
    """Return the C source of `int32_t NAME_run(void *arena)`. It calls the model's entry point with
    an array of 64-bit slots: the addresses of inputs, outputs, parameters, workspace and sizes."""
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


@functools.lru_cache(maxsize=64)  # Benchmarks link the same code repeatedly.
def library(part: BarePart, content: bytes, params: bytes, name: str = MODEL) -> bytes:
    """Return one self-contained object file with the function `NAME_run`: the model, its
    parameters, and the support functions that its code calls."""
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        return _library(Path(at), name, part, content, params)


def _library(folder: Path, name: str, part: BarePart, content: bytes, params: bytes) -> bytes:
    (folder / "kernels.o").write_bytes(content)
    (folder / "params.bin").write_bytes(params)
    (folder / "glue.c").write_text(glue(name, part))
    compile_c(folder, CORES[part.core], "glue.c")
    return joined(folder, part.core, ("glue.o", "kernels.o"), [f"{name}_run"])


def joined(folder: Path, core: str, objects: Sequence[str], symbols: Sequence[str]) -> bytes:
    """Link the object files `objects` in `folder` to one self-contained object file, and return it.
    The file contains the functions `symbols` and everything that they need, including the support
    functions that code calls implicitly, such as memcpy. Raises CompilerError."""
    for file, content in support(core).items():
        (folder / file).write_bytes(content)
    roots = [word for symbol in symbols for word in ("-u", symbol)]
    words = ["ld.lld", "-r", "--gc-sections", *roots, "-o", "library.o", *objects, *support(core)]
    zig.run(words, folder, "linking failed")
    whole = (folder / "library.o").read_bytes()
    if not undefined_symbols(whole):
        return whole
    target = CORES[core]
    (folder / "builtins.o").write_bytes(builtins(target.c_target, target.c_cpu))
    zig.run([*words, "builtins.o"], folder, "linking failed")
    whole = (folder / "library.o").read_bytes()
    if lacks := undefined_symbols(whole):
        raise CompilerError(
            f"code for {core} calls functions that no microcontroller has: {', '.join(lacks)}"
        )
    return whole


def support(core: str) -> Mapping[str, bytes]:
    """Return the object files, by name, of the support functions that compiled code calls
    implicitly, such as memcpy."""
    return {f"{name}.o": compiled(core, f"{name}.c") for name in ("support", "rounding")}


@functools.cache
def builtins(target: str, cpu: str) -> bytes:
    """Return an object file with zig's compiler-rt functions, which implement operations for which
    a core has no instruction, such as arithmetic on floats. A linker includes only the functions
    that are called."""
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        words: list[str | Path] = ["build-obj"]
        words += [zig.home() / "lib" / "compiler_rt.zig", "-femit-bin=builtins.o"]
        words += ["-target", target, f"-mcpu={cpu}"]
        words += ["-OReleaseSmall", "-ffunction-sections", "-fstrip"]
        zig.run(words, Path(at), "the functions of floats do not compile")
        return (Path(at) / "builtins.o").read_bytes()


@functools.lru_cache(maxsize=64)  # Benchmarks link the same code repeatedly.
def check_image(part: BarePart, joined: bytes, board: Board, name: str = MODEL) -> bytes:
    """Return an ELF file that runs a model once on a board (`firmware/check.c`) and writes the
    outputs. `joined` is the model's library, with the function `NAME_run`."""
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        folder = Path(at)
        (folder / "library.o").write_bytes(joined)
        returned = part.arena.offsets[len(part.inputs) :], part.outputs
        _compile_check(folder, part, board, name, returned)
        objects = ["start.o", "check.o", "library.o"]
        if board.disk is not None:
            (folder / "boot.c").write_text(_boot(board, board.disk))
            compile_c(folder, CORES[part.core], "boot.c")
            objects.append("boot.o")
        return link(folder, board, objects)


def _boot(board: Board, disk: Disk) -> str:
    """Return the C source of the constants that the boot loader of a board looks for: the words by
    which it recognizes a program, and the bytes of its second stage."""
    stage = b"" if disk.second_stage is None else second_stage(board.core, board.flash.address)
    constants = {("unsigned", "boot"): disk.boot, ("unsigned char", "second_stage"): tuple(stage)}
    return "".join(
        f'__attribute__((section(".{name}"), used, aligned(4)))\n'
        f"const {kind} {name}[] = {{{', '.join(map(hex, numbers))}}};\n"
        for (kind, name), numbers in constants.items()
        if numbers
    )


@functools.lru_cache(maxsize=64)
def image_program(image: BoardImage, symbol: str, sizes: tuple[int, ...], board: Board) -> bytes:
    """Return an ELF file for a board that calls the entry point `symbol` of an image once. The
    arguments of the call are pointers to areas of memory with these `sizes` in bytes; afterwards
    the program writes the content of all areas to a file. Raises CompilerError if the image has no
    such entry point."""
    try:
        entry = _IMAGE_AT + image.entry(symbol)
    except ImageError as error:
        raise CompilerError(str(error)) from None
    is_thumb = not CORES[board.core].arch.startswith("riscv")
    part = BarePart(board.core, symbol, sizes, (), 0, 0)
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        folder = Path(at)
        (folder / "image.bin").write_bytes(image.at(board.flash.address + _IMAGE_AT))
        (folder / "params.bin").write_bytes(b"")
        (folder / "glue.c").write_text(glue(MODEL, part) + _IMAGE_SECTION)
        compile_c(folder, CORES[board.core], "glue.c")
        (folder / "support.o").write_bytes(compiled(board.core, "support.c"))
        _compile_check(folder, part, board, MODEL, (part.arena.offsets, sizes))
        objects = ("start.o", "check.o", "glue.o", "support.o")
        address = board.flash.address + entry + is_thumb
        return link(folder, board, (*objects, f"--defsym={symbol}={address:#x}"))


# The offset of the image in flash: after the program that calls it, aligned as images must be.
_IMAGE_AT = ALIGNMENT
_IMAGE_SECTION = """
__asm__(".pushsection .image,\\"a\\"\\n.incbin \\"image.bin\\"\\n.popsection");
"""


def _compile_check(
    folder: Path,
    part: BarePart,
    board: Board,
    name: str,
    returned: tuple[Sequence[int], Sequence[int]],
) -> None:
    """Compile the C program (`firmware/check.c`) that runs a model once and then writes parts of
    the memory to a file. `returned` has the offset and the size of each part."""
    (folder / "model.h").write_text(_check_header(part, name, returned))
    emulator = board.emulator
    (folder / "start.o").write_bytes(compiled(board.core, "start.c"))
    macros = {emulator.counter_kind: emulator.counter} if emulator and emulator.counter else {}
    compile_c(folder, CORES[board.core], FIRMWARE / "check.c", macros)


def _check_header(part: BarePart, name: str, returned: tuple[Sequence[int], Sequence[int]]) -> str:
    """Return the C header through which `firmware/check.c` calls a particular model."""

    def calls(offsets: Sequence[int], sizes: Sequence[int]) -> str:
        pairs = zip(offsets, sizes, strict=False)
        return " ".join(f"CALL({offset}, {nbytes})" for offset, nbytes in pairs)

    return f"""\
#pragma once
#include <stdint.h>
#define MODEL_ARENA_BYTES {part.arena.nbytes}
#define MODEL_INPUTS(CALL) {calls(part.arena.offsets, part.inputs)}
#define MODEL_OUTPUTS(CALL) {calls(*returned)}
int32_t {name}_run(void *arena);
#define MODEL_RUN {name}_run
"""


def link(folder: Path, board: Board, objects: Sequence[str]) -> bytes:
    """Link objects to an ELF file that is placed in a board's memories."""
    (folder / "board.ld").write_text(linker_script(board))
    words = ["ld.lld", "-T", "board.ld", "--gc-sections", "--no-undefined", *objects]
    zig.run([*words, "-o", "image.elf"], folder, "linking failed")
    return (folder / "image.elf").read_bytes()


def linker_script(board: Board) -> str:
    """Return the linker script that places a program in a board's memories."""
    vectors = Region(board.vectors, 4096) if board.vectors is not None else board.flash
    memories = {"FLASH (rx)": board.flash, "RAM (rwx)": board.ram}
    place = "FLASH"
    if board.vectors is not None:
        memories["VECTORS (rx)"] = vectors
        place = "VECTORS"
    stage = ""
    if board.disk is not None and board.disk.second_stage is not None:
        memories["STAGE (rx)"] = Region(board.disk.second_stage, STAGE_BYTES)
        stage = "  .second_stage : { KEEP(*(.second_stage)) } > STAGE\n"
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
{stage}  .vectors : {{ KEEP(*(.vectors)) KEEP(*(.boot)) }} > {place}
  .text : {{ *(.text .text.*) *(.rodata .rodata.* .srodata .srodata.*) }} > FLASH
  .ARM.exidx : {{ *(.ARM.exidx .ARM.exidx.*) }} > FLASH
  .image {board.flash.address + _IMAGE_AT:#x} : {{ KEEP(*(.image)) }} > FLASH
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
