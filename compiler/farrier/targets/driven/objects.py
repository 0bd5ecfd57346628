"""The object files and libraries for a device that a host drives, as JSON texts.

An object is {"kernels": {NAME: TEXT}, "host": [BASE64], "programs": {NAME: PROGRAM}}: the source
texts of the device's kernels, the host's object files, and driver programs. A library
(`farrier_device.device_library`) has the same form, except that "host" is a single shared library.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.targets.target import Target
from farrier_device.program import Program, program_to_json


def written(kernels: Mapping[str, str], programs: Mapping[str, Program]) -> bytes:
    """Return the JSON object that contains the device kernels `kernels` and the driver `programs`,
    both by name."""
    parts = {name: json.loads(program_to_json(program)) for name, program in programs.items()}
    return json.dumps({"kernels": dict(kernels), "host": [], "programs": parts}).encode()


def of_host(content: bytes) -> bytes:
    """Return the JSON object that contains one object file of the host, `content`."""
    host = [base64.b64encode(content).decode()]
    return json.dumps({"kernels": {}, "host": host, "programs": {}}).encode()


def joined(
    objects: Sequence[bytes], host: Target | None = None, symbols: Sequence[str] = ()
) -> bytes:
    """Return the JSON library that `objects` are linked to. The host's shared library in it exports
    `symbols`."""
    kernels, library = kernels_of(objects, host, symbols)
    programs: dict[str, Any] = {}
    for content in map(json.loads, objects):
        programs |= content["programs"]
    whole = {
        "kernels": kernels,
        "host": base64.b64encode(library).decode(),
        "programs": programs,
    }
    return json.dumps(whole).encode()


def kernels_of(
    objects: Sequence[bytes], host: Target | None, symbols: Sequence[str] = ()
) -> tuple[dict[str, str], bytes]:
    """Return the device's kernels in `objects` by name, and the shared library that the `host`'s
    object files in them are linked to, which exports `symbols`. The library is b"" if no object has
    host code."""
    kernels: dict[str, str] = {}
    host_objects: list[bytes] = []
    for content in map(json.loads, objects):
        kernels |= content["kernels"]
        host_objects += map(base64.b64decode, content["host"])
    if not host_objects:
        return kernels, b""
    assert host is not None, "kernels run on a host that the target does not have"
    return kernels, host.backend.library(list(dict.fromkeys(host_objects)), symbols, host)
