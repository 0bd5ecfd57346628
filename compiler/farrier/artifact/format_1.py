"""Artifacts of format 1, which have one ELF library, `model.so`, and CPU-specific fields in the
manifest.

They are converted to the current format when they are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from farrier_device import codec
from farrier_device.codec import Natural
from farrier_device.library_form import HOST_CODE

FORMAT = 1
LIBRARY, PATH = "model.so", "code/model.so"


@dataclasses.dataclass(frozen=True, slots=True)
class _Cpu:
    """The fields of a manifest of format 1 that are elsewhere in the current format."""

    entry: str
    triple: str
    cpu: str
    threads: Natural
    max_threads: Natural
    workspace_bytes: Natural
    hashes: dict[str, str]
    workspace: int | str = 0


def upgraded(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a manifest of format 1 in the current format. Raises ValueError."""
    cpu = codec.decode(_Cpu, raw, name="manifest")
    moved = {field.name for field in dataclasses.fields(_Cpu)}
    fields = {name: value for name, value in raw.items() if name not in moved}
    hashes = dict(cpu.hashes)
    library = {"path": PATH, "kind": HOST_CODE, "entries": [cpu.entry]}
    return fields | {
        "architecture": cpu.triple.partition("-")[0],
        "machine": cpu.cpu,
        "code": [library | {"sha256": hashes.pop(LIBRARY, "")}],
        "hashes": hashes,
        "backend": {
            "triple": cpu.triple,
            "threads": cpu.threads,
            "max_threads": cpu.max_threads,
            "entry": cpu.entry,
            "workspace_bytes": cpu.workspace_bytes,
            "workspace": cpu.workspace,
        },
    }


def renamed(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the members of an archive of format 1 under their names in the current format."""
    return {PATH if name == LIBRARY else name: data for name, data in members.items()}
