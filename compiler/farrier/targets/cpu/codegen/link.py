"""Objects to a shared library, by the ld.lld that ziglang carries: no toolchain, any ELF target."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from farrier.errors import CompilerError
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
        command = [
            str(_zig()),
            "ld.lld",
            "-shared",
            "-Bsymbolic",
            "--no-undefined",
            "--build-id=none",
        ]
        command += ["-O0", "--hash-style=gnu", "-z", f"max-page-size={page_bytes}"]
        if exports is not None:
            visible = "".join(f"{symbol}; " for symbol in exports)
            (folder / "exports").write_text(f"{{ global: {visible}local: *; }};\n")
            command.append("--version-script=exports")
        for number, content in enumerate(objects):
            (folder / f"{number}.o").write_bytes(content)
            command.append(f"{number}.o")
        done = subprocess.run(
            [*command, "-o", "library.so"], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CompilerError(f"linking failed:\n{done.stderr.strip()}")
        return (folder / "library.so").read_bytes()


@functools.cache
def _zig() -> Path:
    """The executable inside the ziglang wheel; `python -m ziglang` would start Python once more."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise CompilerError("the linker is not installed", hint="pip install 'farrier[compiler]'")
    return Path(spec.origin).parent / "zig"
