"""The machine that code is made for: what all kinds of machines have."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeVar

from farrier_device import codec

if TYPE_CHECKING:
    from farrier.targets.backend import Backend

T = TypeVar("T", bound="Target")


@dataclasses.dataclass(frozen=True, slots=True)
class MemorySpace:
    """A memory in which values of a driver program lie, by the name that programs have for it."""

    name: str
    alignment: int = 64  # The offset of a value is a multiple of it, in bytes.
    nbytes: int = 0  # Its size; 0 if the machine decides.


@dataclasses.dataclass(frozen=True, slots=True)
class ParallelAxis:
    """An axis along which a launch runs in parallel, with the most that it may have there. Those of
    a device are its "blocks" and the "threads" of a block (`partition.capacity`)."""

    name: str
    limit: int


@dataclasses.dataclass(frozen=True, slots=True)
class Target(abc.ABC):
    """One kind of machine. Each family of machines has a subclass, with the fields that its
    backends ask for (`targets.cpu.target`); all fields are data, and those of a text or a record
    are read by `targets.read_target`."""

    triple: str  # The platform: architecture, vendor, system. LLVM's triple where LLVM knows it.
    cpu: str  # The processor, by LLVM's name where LLVM knows it.
    features: tuple[str, ...]  # The kernel's names of the ISA extensions beyond `cpu`'s, sorted.

    @property
    @abc.abstractmethod
    def backend(self) -> Backend:
        """The backend whose target it is."""

    @property
    @abc.abstractmethod
    def threads(self) -> int:
        """The threads that run a model where its options do not say."""

    @property
    def spaces(self) -> tuple[MemorySpace, ...]:
        """The memories of the machine, the host's first."""
        from farrier_device.program import HOST

        return (MemorySpace(HOST),)

    @property
    def axes(self) -> tuple[ParallelAxis, ...]:
        """The parallel axes of the machine, the outermost first."""
        return (ParallelAxis("threads", self.threads),)

    def part(self, space: str) -> Target:
        """Return the part that runs the kernels of a space, and itself for any other space."""
        return self.backend.parts(self).get(space, self)

    @property
    def arch(self) -> str:
        """The architecture, as `uname -m` names it."""
        return self.triple.partition("-")[0]

    @property
    def required_features(self) -> frozenset[str]:
        """The kernel's names of every ISA extension that code may use."""
        return frozenset(self.features)

    @property
    def fingerprint(self) -> str:
        """The digest of all that a tuning record's timing depends on, as 16 hex digits."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object; `from_dict` of its class reads it back."""
        fields: dict[str, Any] = codec.encode(self)
        return fields

    @classmethod
    def from_dict(cls: type[T], raw: object) -> T:
        """Raise ValueError for anything but the fields of such a target."""
        return codec.decode(cls, raw, unknown=codec.Unknown.REFUSED, name="target")
