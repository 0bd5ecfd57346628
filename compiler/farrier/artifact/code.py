"""The code of an artifact: code objects, and the program that launches their kernels.

A code object is stored in the archive as `code/NAME`, and the manifest has a `CodeFile` for it. Its
kind is a name known to the devices that load it (`farrier_device.devices`), such as `elf`, or a
backend's own. A backend whose code objects include the driver, as those for CPUs do, has no
program.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from farrier.errors import ArtifactError

if TYPE_CHECKING:
    from farrier_device.program import Program

PROGRAM = "program.json"
# A name in the folder alone: whoever unpacks an archive writes nowhere else.
_PATH = re.compile(r"code/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclasses.dataclass(frozen=True, slots=True)
class CodeFile:
    """The manifest's entry for a code object: its path, its kind, and the entry points in it that a
    run of the model calls."""

    path: str
    kind: str
    entries: tuple[str, ...]
    sha256: str

    def check(self) -> None:
        """Raise ValueError for a path outside the folder of code objects."""
        if not _PATH.fullmatch(self.path):
            raise ValueError(f"{self.path!r} is not the path of a code object: code/NAME")


@dataclasses.dataclass(frozen=True, slots=True)
class CodeObject:
    """A code object that a backend has generated, to be stored at `path`."""

    path: str
    kind: str
    entries: tuple[str, ...]
    content: bytes

    @property
    def file(self) -> CodeFile:
        digest = hashlib.sha256(self.content).hexdigest()
        return CodeFile(self.path, self.kind, self.entries, digest)


@dataclasses.dataclass(frozen=True, slots=True)
class ModelCode:
    """All code of a model, without its parameters: a backend generates it, and loads it again.
    `backend` is the part of the manifest that only this backend reads, as JSON types."""

    objects: tuple[CodeObject, ...]
    backend: Mapping[str, Any]
    program: Program | None = None

    @property
    def nbytes(self) -> int:
        """The total size of the code objects in bytes."""
        return sum(len(code.content) for code in self.objects)

    def check_kinds(self, kinds: Iterable[str], whose: str) -> None:
        """Raise ArtifactError unless all code objects are of the `kinds` that the backend `whose`
        can load."""
        loadable = sorted(kinds)
        for code in self.objects:
            if code.kind not in loadable:
                raise ArtifactError(
                    f"{code.path} is a code object of the kind {code.kind!r}, and {whose} loads "
                    f"{', '.join(loadable)}",
                    hint="run it with the Farrier that made it, or compile the model again",
                )


def program_of(members: Mapping[str, bytes]) -> Program | None:
    """Return the program among an archive's members, None if there is none. Raises ArtifactError
    for a damaged program, and for steps that this version does not know."""
    if PROGRAM not in members:
        return None
    # A CPU's artifact has no program, and is loaded sooner without the grammar.
    from farrier_device.program import program_from_json

    try:
        return program_from_json(members[PROGRAM])
    except ValueError as error:
        raise ArtifactError(
            f"the artifact's {PROGRAM} is damaged, or of a newer Farrier: {error}",
            hint="fetch it again, or run it with the Farrier that made it",
        ) from error
