"""A library for WebGPU: modules of WGSL, and the programs that launch their entry points.

One JSON text, {"kernels": {NAME: WGSL}, "programs": {NAME: PROGRAM}}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from farrier_device.program import Program, program_from_json

GPU = "gpu"  # The space of the device.
WGSL = "wgsl"  # A code object of this kind is one module.
MOST_BYTES = 128 << 20  # A kernel reaches so much of a buffer, by WebGPU's default limits.
LIBRARY = "webgpu"  # A code object of this kind is a library.


class LibraryError(ValueError):
    """Bytes are not a library, or it lacks a program."""


class WebGpuLibrary:
    """The modules and programs of a library, by name. Raises LibraryError."""

    def __init__(self, content: bytes) -> None:
        try:
            raw = json.loads(content)
            self.modules: Mapping[str, str] = {
                str(name): str(text) for name, text in raw["kernels"].items()
            }
            self._programs = {
                str(name): program_from_json(json.dumps(program))
                for name, program in raw["programs"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise LibraryError(f"this is not a library for WebGPU: {error}") from None

    def program(self, name: str) -> Program:
        """Return a program. Raises LibraryError if there is none of that name."""
        if name not in self._programs:
            raise LibraryError(f"the library has no program {name!r}")
        return self._programs[name]
