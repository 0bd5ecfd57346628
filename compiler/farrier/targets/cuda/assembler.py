"""NVIDIA's assembler ptxas, if it is installed by a CUDA toolkit or by the package
nvidia-cuda-nvcc."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from farrier.errors import CompilerError

_log = logging.getLogger(__name__)
_TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE)
_FRAME = re.compile(
    r"Function properties for ([\w$.]+)\s*\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores"
    r"[^\n]*\n[^\n]*?Used (\d+) registers"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """The resources of a thread of an entry point: its registers, and the bytes of its stack frame
    and of spilled registers."""

    entry: str
    registers: int
    stack: int
    spilled: int

    @property
    def is_in_registers(self) -> bool:
        return not self.stack and not self.spilled


@functools.cache
def find_ptxas() -> str | None:
    """Return the path of ptxas; None if it is not installed."""
    if on_path := shutil.which("ptxas"):
        return on_path
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations if spec and spec.submodule_search_locations else ()
    programs = (str(path) for root in map(Path, roots) for path in root.glob("*/bin/ptxas"))
    return next(programs, None)


def version_of(ptxas: str) -> str:
    """Return the lines in which ptxas names its release and build. Raises CompilerError."""
    done = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompilerError(f"{ptxas} --version fails: {done.stderr.strip()}")
    return done.stdout.strip()


def assemble(text: str, cpu: str, ptxas: str) -> tuple[bytes, tuple[Frame, ...]]:
    """Return the cubin of a PTX module for an architecture, and the resources of its entry points.
    Raises CompilerError."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text)
        command = [ptxas, "-v", "-arch", cpu, str(source), "-o", str(result)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            message = done.stderr.replace(str(source), "the module").strip()
            raise CompilerError(f"{ptxas} rejects PTX for {cpu}: {message}")
        frames = (
            Frame(entry, int(registers), int(stack), int(spilled))
            for entry, stack, spilled, registers in _FRAME.findall(done.stderr)
        )
        return result.read_bytes(), tuple(frames)


def cubins(kernels: Mapping[str, str]) -> dict[str, bytes]:
    """Return the cubins for PTX modules by name, each for the architecture in its text. Return none
    if ptxas is not installed or too old for the modules."""
    if (ptxas := find_ptxas()) is None:
        return {}

    def cubin(text: str) -> bytes:
        target = _TARGET.search(text)
        assert target is not None, "PTX names its architecture"
        return assemble(text, target[1], ptxas)[0]

    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return dict(zip(kernels, pool.map(cubin, kernels.values()), strict=True))
    except CompilerError as error:
        _log.warning("the artifact has PTX alone: %s", error)
        return {}
