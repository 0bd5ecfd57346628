"""The text form of a kernel for an accelerator: its instruction words, the accelerator's
description, and a digest.

{"version": VERSION, "name": NAME, "accelerator": {…}, "arguments": [BYTES],
 "words": BASE64 of zlib, "sha256": HEX}
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import zlib
from collections.abc import Sequence
from typing import Any

from farrier.errors import UsageError
from farrier.targets.dae.description import Accelerator, from_json, to_json
from farrier.targets.dae.instructions import VERSION, Instruction, decode, encode

_MOST_BYTES = 1 << 28  # The compiler generates no larger programs, so a larger text is rejected.

_MALFORMED = (
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
    *(zlib.error, UsageError),
)


class ProgramError(ValueError):
    """The error for a text that is not a program or has been modified."""


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """The instructions of a kernel for an accelerator, and the size in bytes of each argument that
    they access."""

    accelerator: Accelerator
    instructions: Sequence[Instruction]
    arguments: tuple[int, ...]
    name: str = ""

    def named(self, name: str) -> Program:
        """Return the program with a kernel's name."""
        return dataclasses.replace(self, name=name)

    def text(self) -> str:
        words = zlib.compress(encode(self.instructions, self.accelerator), 6)
        fields = {
            "version": VERSION,
            "name": self.name,
            "accelerator": to_json(self.accelerator),
            "arguments": list(self.arguments),
            "words": base64.b64encode(words).decode(),
        }
        return json.dumps({**fields, "sha256": _digest(fields)})

    @classmethod
    def of_text(cls, text: str) -> Program:
        """Parse the text of a program. Raises ProgramError if it is not valid."""
        try:
            fields = json.loads(text)
            digest = fields.pop("sha256")
            if digest != _digest(fields):
                raise ProgramError("the program was changed after it was compiled")
            if fields.get("version") != VERSION:
                raise ProgramError(
                    f"its instructions are of version {fields.get('version')}, and this Farrier "
                    f"has version {VERSION}: compile the model again"
                )
            accelerator = from_json(fields["accelerator"])
            packed = base64.b64decode(fields["words"], validate=True)
            unpacking = zlib.decompressobj()
            words = unpacking.decompress(packed, _MOST_BYTES)
            if not unpacking.eof:
                raise ProgramError(f"its words are cut off, or more than {_MOST_BYTES} bytes")
            arguments = tuple(map(int, fields["arguments"]))
            return cls(accelerator, decode(words, accelerator), arguments, str(fields["name"]))
        except ProgramError:
            raise
        except _MALFORMED as error:
            raise ProgramError(f"this is no program of an accelerator: {error}") from None


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
