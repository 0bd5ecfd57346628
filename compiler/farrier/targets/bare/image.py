"""The linker of measured code to a position-independent image, which can be moved to any address in
a board's memory."""

from __future__ import annotations

import collections
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from farrier.errors import CompilerError
from farrier.llvm import zig
from farrier.targets.bare.cores import CORES
from farrier.targets.bare.elf import contents, functions, relocations
from farrier.targets.bare.linking import joined
from farrier_device.boards.image import RISCV_UPPER, THUMB_UPPER, WORD, BoardImage, Header

_SCRIPT = """\
SECTIONS {
  .image 0 : {
    *(.text .text.*) *(.rodata .rodata.* .srodata .srodata.*)
    *(.data .data.* .sdata .sdata.*) *(.bss .bss.* .sbss .sbss.* COMMON) . = ALIGN(8);
  }
  /DISCARD/ : { *(.ARM.exidx .ARM.exidx.*) *(.eh_frame) *(.comment) }
}
"""
# The relocation types of "ELF for the Arm Architecture" (2023Q3), 5.6, and "RISC-V ELF psABI"
# (1.0), 8.4: first those whose word must be adjusted when the image moves; then those of address
# differences and of lower address bits, which stay the same.
_ARM_MOVED = {2: WORD, 38: WORD, 48: THUMB_UPPER}
_ARM_KEPT = frozenset({0, 3, 10, 30, 40, 42, 43, 47, 49, 50, 51, 102, 103})
_RISCV_MOVED = {1: WORD, 26: RISCV_UPPER}
_RISCV_KEPT = frozenset({0, 16, 17, 18, 19, 23, 24, 25, 27, 28, *range(33, 41), 43, 44, 45, 51})


def linked_image(core: str, content: bytes, symbols: Sequence[str]) -> BoardImage:
    """Link an object file for `core` to an image, and return it. `symbols` are the entry points of
    the image; if it is empty, they are all functions of the object. Raises CompilerError."""
    symbols = symbols or sorted(functions(content))
    with tempfile.TemporaryDirectory(prefix="farrier-image-") as at:
        folder = Path(at)
        (folder / "image.ld").write_text(_SCRIPT)
        (folder / "code.o").write_bytes(content)
        (folder / "whole.o").write_bytes(joined(folder, core, ["code.o"], symbols))
        words = ["ld.lld", "-T", "image.ld", "--emit-relocs", "--gc-sections", "--no-relax"]
        words += [word for symbol in symbols for word in ("-u", symbol)]
        zig.run([*words, "whole.o", "-o", "image.elf"], folder, "linking failed")
        linked = (folder / "image.elf").read_bytes()
    defined = functions(linked)
    # Addresses of Thumb functions have the lowest bit set.
    entries = {symbol: defined[symbol] & ~1 for symbol in symbols}
    return BoardImage(
        Header(core, entries, _relocated_words(core, linked)), contents(linked, ".image")
    )


def _relocated_words(core: str, linked: bytes) -> Mapping[str, tuple[int, ...]]:
    """Return the offsets of the words in an image that contain addresses, and must be adjusted when
    the image is loaded at another address. The keys are the kinds of adjustment. Raises
    CompilerError for an unsupported relocation type."""
    is_riscv = CORES[core].arch.startswith("riscv")
    moved, kept = (_RISCV_MOVED, _RISCV_KEPT) if is_riscv else (_ARM_MOVED, _ARM_KEPT)
    places: dict[str, list[int]] = collections.defaultdict(list)
    for place, kind in relocations(linked):
        if kind in moved:
            places[moved[kind]].append(place)
        elif kind not in kept:
            raise CompilerError(
                f"code for {core} has relocations of type {kind}, which no image has"
            )
    return {form: tuple(sorted(each)) for form, each in places.items()}
