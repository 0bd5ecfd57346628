"""What a user may call a machine: `host`, a name that a backend knows, or a description."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.errors import UsageError
from farrier.targets.backend import KnownMachine, backend_for, backends, own_backends
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
_OPTIONAL = {"features": (), "l3_bytes": 0, "memory_bytes": 0, "emulated": False}
_EXAMPLE = "`farrier targets NAME` prints the description of a known machine; sizes are bytes"
_NEAREST = 3  # names that an error offers


def parse_target(text: str) -> Target:
    """The machine that `--target` names: `host`, a known machine (`farrier targets`), or the JSON
    text of a `MachineDescription`. Raises UsageError."""
    if text == "host":
        return host()
    machine = parse_machine(text)
    return backend_for(machine.description.arch).target(machine.description)


def parse_machine(text: str) -> KnownMachine:
    """A known machine, or the one that a description describes. Raises UsageError."""
    if _is_description(text):
        return KnownMachine(_described(text), "described")
    for group in (own_backends, backends):  # other packages are looked for last
        for backend in group():
            if text in backend.machines:
                return backend.machines[text]
    if text.startswith(("class:", "device:")):
        raise UsageError(
            f"{text} names a machine of a farm",
            hint="`farrier submit` compiles for it; `farrier targets` lists what is known here",
        )
    near = difflib.get_close_matches(text, [*known_machines(), "host"], _NEAREST, cutoff=0.4)
    raise UsageError(
        f"unknown target {text!r}",
        hint=f"did you mean {' or '.join(near)}? " * bool(near)
        + "`farrier targets` lists all; --target FILE.json describes another machine",
    )


def canonical(text: str) -> str:
    """What `parse_target` takes, in one form: of a description its fields alone, on one line.
    Raises UsageError."""
    if not _is_description(text):
        return text
    return to_text(_described(text))


def to_text(description: MachineDescription) -> str:
    """The JSON text, on one line, that `parse_target` reads."""
    fields = dataclasses.asdict(description)
    if not description.emulated:  # which versions before it do not know
        del fields["emulated"]
    return json.dumps(fields, separators=(",", ":"))


def called(text: str) -> str:
    """What to call a target in a sentence: its name, or the CPU and cores of a description."""
    if not _is_description(text):
        return text
    try:
        description = _described(text)
    except UsageError:
        return "a described machine"
    return f"{description.cpu or description.arch} with {description.cores} cores"


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
    arch = triple.partition("-")[0]
    try:
        backend = backend_for(arch)
    except UsageError:
        return f"no installed backend is for {arch}"
    return backend.why_not_here(arch, cpu, features)


def _is_description(text: str) -> bool:
    return text.lstrip().startswith("{")


def _described(text: str) -> MachineDescription:
    """A description from JSON text. Raises UsageError that names the field at fault."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
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
            hint=_EXAMPLE,
        )
    return MachineDescription(**{name: _field(name, whole[name]) for name in fields})


def _field(name: str, value: Any) -> Any:
    """A field of a description. Raises UsageError for a value that it cannot have."""
    if name == "features":
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            return tuple(sorted(set(value)))
        what = f"features is {value!r}, not a list of the kernel's names of extensions"
    elif name == "emulated":
        if isinstance(value, bool):
            return value
        what = f"{name} is {value!r}, not true or false"
    elif name in _MOST:
        least = 0 if name in _OPTIONAL else 1
        if type(value) is int and least <= value <= _MOST[name]:
            return value
        what = f"{name} is {value!r}, not a whole number of {least} to {_MOST[name]}"
    else:
        if isinstance(value, str):
            return value
        what = f"{name} is {value!r}, not a text"
    raise UsageError(f"in the description of the target {what}", hint=_EXAMPLE)
