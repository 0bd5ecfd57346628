"""The role of a backend that turns names and descriptions of machines into targets."""

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
    """A machine that users can select by name. `source` cites the origin of its figures. A
    `generic` machine stands for an instruction set: its code runs on every machine with that set,
    and its core count and cache sizes are guesses."""

    description: MachineDescription
    source: str
    generic: bool = False


class Describing(Protocol):
    """The conversion of machine descriptions to targets.

    Equal descriptions result in equal targets, and a target that is written as a JSON object and
    read again is equal to the original. These methods import no compiler.
    """

    @property
    def name(self) -> str:
        """The name of the backend, for error messages."""
        ...

    @property
    def archs(self) -> frozenset[str]:
        """The architectures of the backend's machines, as `uname -m` prints them. No architecture
        belongs to two backends."""
        ...

    @property
    def machines(self) -> Mapping[str, KnownMachine]:
        """The machines that `--target` accepts by name. `target` must accept the description of
        each."""
        ...

    @property
    def target_type(self) -> type[Target]:
        """The class of the backend's targets."""
        ...

    def target(self, machine: MachineDescription) -> Target:
        """Return the target for a machine description. Raises UsageError that names a feature which
        all generated code needs and the machine lacks."""
        ...

    def read(self, text: str) -> MachineDescription:
        """Parse a user's TOML file, whose `arch` is one of the backend's architectures, as a
        machine description. Raises UsageError."""
        raise UsageError(
            f"the machines of {self.name} have no description in TOML",
            hint="--target FILE.json describes one: `farrier targets NAME` prints a known one's",
        )

    def written(self, machine: MachineDescription) -> str:
        """Return TOML text that `read` parses back to `machine`; "" if the backend's machines are
        described by JSON alone."""
        return ""

    def driven_by(self, target: Target, host: Target) -> Target:
        """Return the device `target` with `host` as the machine that drives it. Raises UsageError
        if `target` is not a device."""
        raise UsageError(
            f"{target.cpu} is a machine of its own, and no host drives it",
            hint="HOST+DEVICE names a processor and a device such as webgpu, in this order",
        )
