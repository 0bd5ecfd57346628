"""The simulators of machines, which packages provide as entry points of the group
`farrier.simulators`. The name of an entry point is the architecture that it simulates.

    [project.entry-points."farrier.simulators"]
    dae = "farrier.targets.dae.simulator.offered:SIMULATOR"

    $ farrier-device --simulate dae:vta …
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from farrier_device import codec, describe
from farrier_device.describe import MachineDescription

GROUP = "farrier.simulators"


class NoSimulatorError(Exception):
    """No installed simulator simulates the requested machine."""


@dataclasses.dataclass(frozen=True, slots=True)
class Simulator:
    """A simulator of machines of one architecture. The function `machine` returns the description
    of a machine from its name, or from the text of a description file; it raises ValueError.
    `kinds` maps each kind of code to the function that opens a device for the code, as
    `module:name`."""

    machine: Callable[[str], MachineDescription]
    kinds: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated machine, which this machine drives as its host."""

    described: MachineDescription

    @property
    def code(self) -> str:
        """A kind of code that the simulated machine runs."""
        return min(installed()[self.described.arch].kinds)

    def machine(self) -> MachineDescription:
        """Return the description of the simulated machine, with this machine as its host."""
        host = dataclasses.replace(describe.describe(), memory_bytes=0)
        return dataclasses.replace(
            self.described, host=json.dumps(codec.encode(host), sort_keys=True)
        )


@functools.cache
def installed() -> Mapping[str, Simulator]:
    """Return the installed simulators, by the architecture that they simulate."""
    points = importlib.metadata.entry_points(group=GROUP)
    return {point.name: point.load() for point in points}


def simulated(stated: str) -> Simulated:
    """Return the simulated machine with a name such as `dae:vta`, or described by a file in TOML or
    JSON. Raises NoSimulatorError."""
    text, arch = stated, stated.partition(":")[0]
    if stated.endswith((".toml", ".json")):
        text = _content(stated)
        arch = _arch_of(stated, text)
    simulator = installed().get(arch)
    if simulator is None:
        others = ", ".join(sorted(installed())) or (
            "none; the package farrier contains that of dae"
        )
        raise NoSimulatorError(
            f"--simulate {stated}: no simulator of {arch} is installed; the installed ones are "
            f"{others}"
        )
    try:
        return Simulated(simulator.machine(text))
    except ValueError as error:
        raise NoSimulatorError(f"--simulate {stated}: {error}") from None


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise NoSimulatorError(f"--simulate {path}: {why}") from None


def _arch_of(path: str, text: str) -> str:
    try:
        raw = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
        return str(raw["arch"])
    except (ValueError, RecursionError):
        raise NoSimulatorError(f"--simulate {path}: it is neither TOML nor JSON") from None
    except (KeyError, TypeError):
        raise NoSimulatorError(f"--simulate {path}: the description has no field 'arch'") from None
