"""Objects to a shared library, by ld.lld: no toolchain, any ELF target."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from farrier.llvm import zig
from farrier.targets.cpu.codegen.support import SYMBOLS, support_object
from farrier.targets.cpu.target import CpuTarget

_PAGE_BYTES = 65536  # as large as a page of any Linux


def library(objects: Sequence[bytes], symbols: Sequence[str], target: CpuTarget) -> bytes:
    """The shared library of `objects` and the support code, which hosts bind to. `symbols` are to
    be seen from outside, as are those of the support code; none are named: all are."""
    exports = (*SYMBOLS, *symbols) if symbols else None
    return link([*objects, support_object(target)], exports, target.page_bytes)


def link(
    objects: Sequence[bytes], exports: Sequence[str] | None = None, page_bytes: int = _PAGE_BYTES
) -> bytes:
    """The shared library of `objects`, which see each other's symbols and need nothing else.

    `exports` are the symbols to be seen from outside (None: all). CompilerError names every symbol
    that nothing defines: generated code may call neither libc nor libm.
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
