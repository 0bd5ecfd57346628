"""The compilation of the C and assembly sources in `firmware/`, and of C glue code, by zig."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from pathlib import Path

from farrier.llvm import zig
from farrier.targets.bare.cores import CORES, Core

FIRMWARE = Path(__file__).parent / "firmware"
# Freestanding code without a library, with each function in a section of its own, so that the
# linker can drop unused ones. Loops must not become calls of `memcpy`, since within `memcpy` that
# would not end.
_C = (
    *("-std=c11", "-O2", "-ffreestanding", "-fno-builtin", "-nostdlib", "-fno-sanitize=all"),
    *("-ffunction-sections", "-fdata-sections", "-fno-stack-protector", "-fno-unwind-tables"),
    *("-fno-asynchronous-unwind-tables", "-g0"),
)


def compile_c(
    folder: Path, core: Core, source: str | Path, macros: Mapping[str, int] | None = None
) -> None:
    """Compile a C source to an object file of the same name in `folder`."""
    target = ["cc", "-target", core.c_target, f"-mcpu={core.c_cpu}"]
    if core.abi:
        target.append(f"-mabi={core.abi}")
    defined = [f"-D{name}={value}" for name, value in (macros or {}).items()]
    output = Path(source).with_suffix(".o").name
    words = [*target, *_C, "-I.", f"-I{FIRMWARE}", *defined, "-c", source, "-o", output]
    zig.run(words, folder, f"{Path(source).name} does not compile")


@functools.cache
def compiled(core: str, source: str) -> bytes:
    """Return the object file of a C source in `firmware/`, which does not depend on the model."""
    with tempfile.TemporaryDirectory(prefix="farrier-firmware-") as at:
        folder = Path(at)
        compile_c(folder, CORES[core], FIRMWARE / source)
        return (folder / source).with_suffix(".o").read_bytes()
