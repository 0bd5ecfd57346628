"""The base class of targets: the properties that all kinds of machines have."""

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
    """A memory of the machine, such as a device's DRAM. `name` identifies it in driver programs
    (`partition.program`), which allocate and copy values in it."""

    name: str
    alignment: int = 64  # The offset of a value is a multiple of it, in bytes.
    nbytes: int = 0  # Its size; 0 if the machine decides.


@dataclasses.dataclass(frozen=True, slots=True)
class ParallelAxis:
    """An axis of a parallel launch, and the largest extent that a launch may have along it. The
    axes of a device are called "blocks" and "threads" (of a block), see `partition.capacity`."""

    name: str
    limit: int


@dataclasses.dataclass(frozen=True, slots=True)
class Target(abc.ABC):
    """A kind of machine to compile for. Each family of machines has a subclass with the fields that
    its backends need, for example `targets.cpu.target`. All fields are plain data;
    `targets.read_target` reads a target from text or from a tuning record."""

    triple: str  # The platform: architecture, vendor, system. LLVM's triple where LLVM knows it.
    cpu: str  # The processor, by LLVM's name where LLVM knows it.
    features: tuple[str, ...]  # The kernel's names of the ISA extensions beyond `cpu`'s, sorted.

    @property
    @abc.abstractmethod
    def backend(self) -> Backend:
        """The backend that compiles for this target."""

    @property
    @abc.abstractmethod
    def threads(self) -> int:
        """The default number of threads for running a model."""

    @property
    def spaces(self) -> tuple[MemorySpace, ...]:
        """The memory spaces of the machine; the host's memory comes first."""
        from farrier_device.program import HOST

        return (MemorySpace(HOST),)

    @property
    def axes(self) -> tuple[ParallelAxis, ...]:
        """The axes along which launches run in parallel, outermost first."""
        return (ParallelAxis("threads", self.threads),)

    def part(self, space: str) -> Target:
        """Return the target whose backend compiles the kernels that run in a memory space: the host
        for the host's memory, and the target itself for any other space."""
        return self.backend.parts(self).get(space, self)

    def for_kernels(self, count: int) -> Target:
        """Return the target to use when scheduling a model that has `count` kernels. It is this
        target itself, unless the machine has so little memory for code that the kernels must share
        it; a copy of the target then prefers shorter code."""
        return self

    @property
    def arch(self) -> str:
        """The architecture, as `uname -m` prints it."""
        return self.triple.partition("-")[0]

    @property
    def required_features(self) -> frozenset[str]:
        """The ISA extensions that generated code may use, under the Linux kernel's names."""
        return frozenset(self.features)

    @property
    def precision_features(self) -> frozenset[str]:
        """The features by which a backend decides on its `precisions`."""
        return self.required_features

    @property
    def fingerprint(self) -> str:
        """A hash of all properties that measured times depend on, as 16 hex digits, for tuning
        records."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return the target as a JSON object, which `from_dict` of the same class reads."""
        fields: dict[str, Any] = codec.encode(self)
        return fields

    @classmethod
    def from_dict(cls: type[T], raw: object) -> T:
        """Return the target that a JSON object describes. Raises ValueError if the fields are not
        exactly those of the class."""
        return codec.decode(cls, raw, unknown=codec.Unknown.REFUSED, name="target")
