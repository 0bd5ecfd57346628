"""The names of targets: `host`, the name of a machine that a backend defines, or a description."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.errors import UsageError
from farrier.targets.describing import KnownMachine
from farrier.targets.registry import backend_for, backends, own_backends
from farrier.targets.target import Target
from farrier_device import codec, describe
from farrier_device.describe import MachineDescription

# The most cores, and the largest sizes, of a description.
_MOST = {
    "cores": 4096,
    "l1_bytes": 1 << 24,
    "l2_bytes": 1 << 30,
    "l3_bytes": 1 << 34,
    "memory_bytes": 1 << 50,
}
_OPTIONAL = {"features": (), "l3_bytes": 0, "memory_bytes": 0, "emulated": False, "host": ""}
_HINT = (
    f"fields: {', '.join(sorted(MachineDescription.__dataclass_fields__))}; sizes are bytes, and a "
    "name that begins with # is a comment; `farrier targets NAME` prints a known machine's"
)
_NEAREST = 3  # The names that an error offers.


def parse_target(text: str) -> Target:
    """Return the target for an argument of `--target`: `host`, the name of a known machine
    (`farrier targets`), the JSON text of a `MachineDescription`, or HOST+DEVICE for a device and
    the host that drives it. Raises UsageError."""
    if text == "host":
        return host()
    driver, device = driver_and_device(text)
    if driver:
        target = parse_target(device)
        return target.backend.driven_by(target, parse_target(driver))
    machine = parse_machine(text)
    return backend_for(machine.description.arch).target(machine.description)


def driver_and_device(text: str) -> tuple[str, str]:
    """Split HOST+DEVICE into the names of both; return "" as the host if the text names none."""
    driver, is_joined, device = text.rpartition("+")
    is_one = not is_joined or device.rstrip().endswith("}")
    return ("", text) if is_one else (driver, device)


def parse_machine(text: str) -> KnownMachine:
    """Return the machine that `text` denotes: the name of a known machine, a JSON description, or
    HOST+DEVICE for a device with its host. Raises UsageError."""
    driver, device = driver_and_device(text)
    if driver:
        parse_target(text)
        machine = parse_machine(device)
        host = to_text(describe.describe()) if driver == "host" else canonical(driver)
        return dataclasses.replace(
            machine, description=dataclasses.replace(machine.description, host=host)
        )
    if _is_description(text):
        return KnownMachine(_described(text), "described")
    for group in (own_backends, backends):  # Other packages are searched last.
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
    """Return the canonical form of an argument of `parse_target`. A JSON description is reduced to
    its known fields, on one line; a name is returned as it is. Raises UsageError."""
    driver, device = driver_and_device(text)
    if driver:
        return f"{canonical(driver)}+{canonical(device)}"
    if not _is_description(text):
        return text
    return to_text(_described(text))


def to_text(description: MachineDescription) -> str:
    """Return a description as one line of JSON, which `parse_target` parses."""
    return json.dumps(codec.encode(description), separators=(",", ":"))


def called(text: str) -> str:
    """Return the name under which messages mention a target: the argument of `--target` if it is a
    name, or else, for a JSON description, the CPU and the number of cores."""
    driver, device = driver_and_device(text)
    if driver:
        return f"{called(device)} driven by {called(driver)}"
    if not _is_description(text):
        return text
    try:
        description = _described(text)
    except UsageError:
        return "a described machine"
    return f"{description.cpu or description.arch} with {description.cores} cores"


@functools.cache
def known_machines() -> Mapping[str, KnownMachine]:
    """Return the named machines of all backends, by name."""
    machines: dict[str, KnownMachine] = {}
    for backend in reversed(backends()):
        machines.update(backend.machines)
    return machines


@functools.cache
def host() -> Target:
    """Return the target for the machine that this process runs on. Raises UsageError if no backend
    supports its architecture."""
    machine = describe.describe()
    return backend_for(machine.arch).target(machine)


def read_target(raw: object) -> Target:
    """Return the target for a JSON object that `Target.to_dict` wrote. Raises ValueError if the
    object is malformed, and UsageError if no backend supports its architecture."""
    triple = raw.get("triple") if isinstance(raw, dict) else None
    if not isinstance(triple, str):
        raise ValueError("target: an object with a triple is needed")
    return backend_for(triple.partition("-")[0]).target_type.from_dict(raw)


def why_not_here(arch: str, cpu: str, features: Sequence[str]) -> str:
    """Return the reason why this machine cannot run code for a target with that architecture, CPU
    and features, as a clause for a message; "" if it can run the code."""
    try:
        backend = backend_for(arch)
    except UsageError:
        return f"no installed backend is for {arch}"
    return backend.why_not_here(arch, cpu, features)


def _is_description(text: str) -> bool:
    return text.lstrip().startswith("{")


def _described(text: str) -> MachineDescription:
    """Parse JSON text as a machine description. Raises UsageError that names the field at fault."""
    try:
        raw = codec.loads(dict[str, Any], text, name="target")
        raw = {name: value for name, value in raw.items() if not name.startswith("#")}
        whole = {**_OPTIONAL, **raw}
        description = codec.decode(
            MachineDescription, whole, unknown=codec.Unknown.REFUSED, name="target"
        )
        for name, most in _MOST.items():
            least, value = 0 if name in _OPTIONAL else 1, getattr(description, name)
            if not least <= value <= most:
                raise ValueError(f"target.{name}: {value} is not in the range {least} to {most}")
    except ValueError as error:
        raise UsageError(f"cannot read the description of a machine: {error}", hint=_HINT) from None
    return dataclasses.replace(description, features=tuple(sorted(set(description.features))))
