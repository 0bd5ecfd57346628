"""Link objects to a shared library by ld.lld, without a toolchain, for any ELF target."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from farrier.llvm import zig
from farrier.targets.cpu.codegen.support import SYMBOLS, support_object
from farrier.targets.cpu.target import CpuTarget

_PAGE_BYTES = 65536  # The largest page size of any Linux.


def library(objects: Sequence[bytes], symbols: Sequence[str], target: CpuTarget) -> bytes:
    """Return the shared library of `objects` and the support code, which hosts bind to. `symbols`
    are exported, and those of the support code; all are, if none are named."""
    exports = (*SYMBOLS, *symbols) if symbols else None
    return link([*objects, support_object(target)], exports, target.page_bytes)


def link(
    objects: Sequence[bytes], exports: Sequence[str] | None = None, page_bytes: int = _PAGE_BYTES
) -> bytes:
    """Return the shared library of `objects`, which see each other's symbols and need nothing else.

    `exports` are the exported symbols (None: all). CompilerError names every undefined symbol:
    generated code may call neither libc nor libm.
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
