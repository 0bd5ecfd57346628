"""Objects to a shared library, by the ld.lld that ziglang carries: no toolchain, any ELF target."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from farrier.errors import CompilerError

# Offset and values of e_machine in an ELF header, with the largest page that its Linux may use.
_E_MACHINE = 18
_PAGE_BYTES = {62: 4096, 183: 65536}  # x86-64, aarch64


def link(objects: Sequence[bytes], exports: Sequence[str] | None = None) -> bytes:
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
        command += ["-O0", "--hash-style=gnu", "-z", f"max-page-size={_page_bytes(objects[0])}"]
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


def _page_bytes(content: bytes) -> int:
    machine = int.from_bytes(content[_E_MACHINE : _E_MACHINE + 2], "little")
    return _PAGE_BYTES.get(machine, 65536)


@functools.cache
def _zig() -> Path:
    """The executable inside the ziglang wheel; `python -m ziglang` would start Python once more."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise CompilerError("the linker is not installed", hint="pip install 'farrier[compiler]'")
    return Path(spec.origin).parent / "zig"
