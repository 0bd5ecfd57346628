"""A library for a device that a host drives: modules of the device, functions of the host, and the
programs that launch and call them.

One JSON text, {"kernels": {NAME: TEXT}, "host": BASE64, "programs": {NAME: PROGRAM}}. `host` is an
ELF library, or empty if the host has no functions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from farrier_device.program import Program, program_from_json

CALL = "/"  # It stands between the name of a program and the number of a call.


def call_of(program: str, number: int) -> str:
    """Return the name of the entry point for one call of a program; `number` is the call's place in
    the program's text."""
    return f"{program}{CALL}{number}"


class LibraryError(ValueError):
    """Bytes are not a library, or it lacks a program."""


class DeviceLibrary:
    """The modules, the host's library and the programs, by name. Raises LibraryError."""

    def __init__(self, content: bytes) -> None:
        try:
            raw = json.loads(content)
            self.modules: Mapping[str, str] = {
                str(name): str(text) for name, text in raw["kernels"].items()
            }
            self.host = base64.b64decode(raw.get("host", ""), validate=True)
            self._programs = {
                str(name): program_from_json(json.dumps(program))
                for name, program in raw["programs"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise LibraryError(f"this is not a library of a device: {error}") from None

    def program(self, name: str) -> Program:
        """Return a program. Raises LibraryError if there is none of that name."""
        if name not in self._programs:
            raise LibraryError(f"the library has no program {name!r}")
        return self._programs[name]
