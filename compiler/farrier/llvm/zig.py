"""The C compiler, linker and archiver in the ziglang wheel, for any ELF target."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
from collections.abc import Sequence
from pathlib import Path

from farrier.errors import CompilerError


def run(words: Sequence[str | Path], folder: Path, failure: str) -> None:
    """Run `zig WORDS` in a folder. Raises CompilerError with `failure` and the output of the
    tool."""
    # By default, zig writes its cache to the user's home directory, which may not exist.
    environment = {
        "PATH": "",
        "ZIG_GLOBAL_CACHE_DIR": str(folder / ".zig"),
        "ZIG_LOCAL_CACHE_DIR": str(folder / ".zig"),
    }
    command = [home() / "zig", *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise CompilerError(f"{failure}:\n{(done.stderr or done.stdout).strip()}")


@functools.cache
def home() -> Path:
    """Return the folder of the ziglang wheel that contains the executable. Running the executable
    directly avoids a second Python process. Raises CompilerError."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise CompilerError("the linker is not installed", hint="pip install 'farrier[compiler]'")
    return Path(spec.origin).parent
