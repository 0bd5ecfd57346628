"""A library for a device that a host drives: device modules, host functions, and the programs that
launch and call them.

The format is a JSON text, {"kernels": {NAME: TEXT}, "host": BASE64, "programs": {NAME: PROGRAM}}.
`host` is an ELF library, or empty if the programs call no host function.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from farrier_device.program import Program, program_from_json

CALL = "/"  # It stands between the name of a program and the number of a call.


def call_of(program: str, number: int) -> str:
    """Return the name of the entry point that stands for one call or launch of a program; `number`
    is its index in the order of the program's text."""
    return f"{program}{CALL}{number}"


class LibraryError(ValueError):
    """The bytes are not a library, or the library lacks a program."""


class DeviceLibrary:
    """The device modules, the host library and the programs, by name, parsed from bytes. Raises
    LibraryError."""

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
            raise LibraryError(f"these bytes are not a device library: {error}") from None

    def program(self, name: str) -> Program:
        """Return the program with this name. Raises LibraryError if there is none."""
        if name not in self._programs:
            raise LibraryError(f"the library has no program {name!r}")
        return self._programs[name]
