"""The linker of objects to a shared library: ld.lld, for any ELF target, without a toolchain."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from farrier.llvm import zig
from farrier.targets.cpu.codegen.support import SYMBOLS, support_object
from farrier.targets.cpu.target import CpuTarget

_PAGE_BYTES = 65536  # The largest page size of any Linux.


def library(objects: Sequence[bytes], symbols: Sequence[str], target: CpuTarget) -> bytes:
    """Return the shared library that `objects` and the support library are linked to. It exports
    `symbols` and the functions of the support library, or all symbols if `symbols` is empty."""
    exports = (*SYMBOLS, *symbols) if symbols else None
    return link([*objects, support_object(target)], exports, target.page_bytes)


def link(
    objects: Sequence[bytes], exports: Sequence[str] | None = None, page_bytes: int = _PAGE_BYTES
) -> bytes:
    """Return the shared library that `objects` are linked to, without any other library.

    `exports` are the exported symbols (None: all). Raises CompilerError that names every undefined
    symbol, because generated code must not call libc or libm.
    """
    with tempfile.TemporaryDirectory(prefix="farrier-link-") as name:
        folder = Path(name)
        command = ["ld.lld", "-shared", "-Bsymbolic", "--no-undefined", "--build-id=none"]
        command += ["-O0", "--hash-style=gnu", "-z", f"max-page-size={page_bytes}"]
        if exports is not None:
            visible = "".join(f"{symbol}; " for symbol in exports)
            (folder / "exports").write_text(f"{{ global: {visible}local: *; }};\n")
            command.append("--version-script=exports")
        for number, content in enumerate(objects):
            (folder / f"{number}.o").write_bytes(content)
            command.append(f"{number}.o")
        zig.run([*command, "-o", "library.so"], folder, "linking failed")
        return (folder / "library.so").read_bytes()
