"""What a user may call a machine: `host`, a name that a backend knows, or a description."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.errors import UsageError
from farrier.targets.backend import KnownMachine, backend_for, backends
from farrier.targets.target import Target
from farrier_device import describe
from farrier_device.describe import MachineDescription

# Of a description: cores and sizes that no machine has.
_MOST = {
    "cores": 4096,
    "l1_bytes": 1 << 24,
    "l2_bytes": 1 << 30,
    "l3_bytes": 1 << 34,
    "memory_bytes": 1 << 50,
}
_OPTIONAL = {"features": (), "l3_bytes": 0, "memory_bytes": 0}
_NEAREST = 3  # names that an error offers


def parse_target(text: str) -> Target:
    """The machine that `--target` names: `host`, a known machine (`farrier targets`), or the JSON
    text of a `MachineDescription`. Raises UsageError."""
    if text == "host":
        return host()
    if text.lstrip().startswith("{"):
        return _described(text)
    machines = known_machines()
    if text in machines:
        description = machines[text].description
        return backend_for(description.arch).target(description)
    near = difflib.get_close_matches(text, [*machines, "host"], _NEAREST, cutoff=0.4)
    raise UsageError(
        f"unknown target {text!r}",
        hint=f"did you mean {' or '.join(near)}? " * bool(near)
        + "`farrier targets` lists all; --target FILE.json describes another machine",
    )


@functools.cache
def known_machines() -> Mapping[str, KnownMachine]:
    """The machines of all backends, by name."""
    found: dict[str, KnownMachine] = {}
    for backend in reversed(backends()):
        found.update(backend.machines)
    return found


@functools.cache
def host() -> Target:
    """The machine this runs on. Raises UsageError where no backend knows its architecture."""
    machine = describe.describe()
    return backend_for(machine.arch).target(machine)


def why_not_here(triple: str, cpu: str, features: Sequence[str]) -> str:
    """Why this machine cannot run code for another target's triple, CPU and features: a clause, ""
    where it can."""
    machine = describe.describe()
    arch = triple.partition("-")[0]
    if machine.arch in describe.IN_64_BITS:
        return (
            f"this is a 32-bit system ({machine.arch}), and it needs 64-bit Linux and a 64-bit "
            "Python"
        )
    if arch != machine.arch:
        return f"this machine is {machine.arch}"
    required = backend_for(arch).implied(cpu) | set(features)
    missing = sorted(required - set(machine.features))
    return f"this machine lacks {', '.join(missing)}" if missing else ""


def _described(text: str) -> Target:
    """The target of a description as JSON text. Raises UsageError that names the field at fault."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the description of the target is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"a description of a target is an object, not a {type(raw).__name__}")
    fields = {field.name for field in dataclasses.fields(MachineDescription)}
    raw = {name: value for name, value in raw.items() if not name.startswith("#")}
    if unknown := sorted(set(raw) - fields):
        raise UsageError(
            f"a description of a target has no field {unknown[0]!r}",
            hint=f"fields: {', '.join(sorted(fields))}; what begins with # is a comment",
        )
    whole = {**_OPTIONAL, **raw}
    if missing := sorted(fields - set(whole)):
        raise UsageError(
            f"the description of the target lacks {missing[0]!r}",
            hint="`farrier targets NAME` prints the description of a known machine",
        )
    description = MachineDescription(**{name: _field(name, whole[name]) for name in fields})
    return backend_for(description.arch).target(description)


def _field(name: str, value: Any) -> Any:
    """A field of a description. Raises UsageError for a value that it cannot have."""
    if name == "features":
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            return tuple(sorted(set(value)))
        raise UsageError(f"features is {value!r}, not a list of the kernel's names of extensions")
    if name in _MOST:
        least = 0 if name in _OPTIONAL else 1
        if type(value) is int and least <= value <= _MOST[name]:
            return value
        raise UsageError(f"{name} is {value!r}, not a whole number of {least} to {_MOST[name]}")
    if not isinstance(value, str):
        raise UsageError(f"{name} is {value!r}, not a text")
    return value
