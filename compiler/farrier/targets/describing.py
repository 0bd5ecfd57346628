"""The role of a backend that describes machines: names and descriptions → targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from farrier.errors import UsageError
from farrier_device.describe import MachineDescription

if TYPE_CHECKING:
    from farrier.targets.target import Target


@dataclasses.dataclass(frozen=True, slots=True)
class KnownMachine:
    """A machine that has a name. `source` says where its figures are from. A `generic` one stands
    for an instruction set: its code runs on every machine that has it, and its cores and caches are
    a guess."""

    description: MachineDescription
    source: str
    generic: bool = False


class Describing(Protocol):
    """Turns descriptions of machines into targets.

    A description stays what it is; equal descriptions have equal targets, and a target reads back
    from its JSON object as an equal one. No compiler is imported for it.
    """

    @property
    def name(self) -> str:
        """The name of the backend, for errors."""
        ...

    @property
    def archs(self) -> frozenset[str]:
        """The architectures of its machines, as `uname -m` names them. No two backends share
        one."""
        ...

    @property
    def machines(self) -> Mapping[str, KnownMachine]:
        """The machines that `--target` knows by name; `target` takes each of them."""
        ...

    @property
    def target_type(self) -> type[Target]:
        """The class of its targets."""
        ...

    def target(self, machine: MachineDescription) -> Target:
        """Return the target that a machine is. Raises UsageError for a machine that lacks what all
        code needs, naming it."""
        ...

    def read(self, text: str) -> MachineDescription:
        """Return the machine that the text of a user's TOML file describes, in which `arch` is one
        of the backend's. Raises UsageError."""
        raise UsageError(
            f"the machines of {self.name} have no description in TOML",
            hint="--target FILE.json describes one: `farrier targets NAME` prints a known one's",
        )

    def written(self, machine: MachineDescription) -> str:
        """Return a text that `read` reads as the machine; "" if JSON describes its machines."""
        return ""

    def driven_by(self, target: Target, host: Target) -> Target:
        """Return the target of a device with the host that drives it. Raises UsageError for a
        target that is not a device."""
        raise UsageError(
            f"{target.cpu} is a machine of its own, and no host drives it",
            hint="HOST+DEVICE names a processor and a device such as webgpu, in this order",
        )
