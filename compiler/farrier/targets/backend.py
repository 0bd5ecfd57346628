"""Who makes code for a kind of hardware: the protocol, and the registry.

A backend of another package registers itself as an entry point of the group `farrier.backends`,
whose object is an instance of `Backend`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from farrier.errors import UsageError
from farrier_device.describe import MachineDescription

if TYPE_CHECKING:
    from farrier.targets.target import Target

GROUP = "farrier.backends"


@dataclasses.dataclass(frozen=True, slots=True)
class KnownMachine:
    """A machine that has a name. `source` says where its figures are from."""

    description: MachineDescription
    source: str


@dataclasses.dataclass(frozen=True, slots=True)
class LLVMOptions:
    """`features` are LLVM's, each with + or -; `flags` are those of LLVM's command line, which hold
    for a whole process until others are set: each backend sets the same ones."""

    features: tuple[str, ...]
    flags: tuple[str, ...]


class Backend(Protocol):
    """Makes code for one family of machines.

    What a backend says of itself is cheap to ask: neither the code generator nor the rules are
    imported for it, because loading an artifact asks too.
    """

    @property
    def name(self) -> str: ...

    @property
    def archs(self) -> frozenset[str]:
        """The architectures of its machines, as `uname -m` names them."""
        ...

    @property
    def machines(self) -> Mapping[str, KnownMachine]:
        """The machines that `--target` knows by name."""
        ...

    def target(self, machine: MachineDescription) -> Target:
        """The target that a machine is. Raises UsageError for a machine that lacks what all code
        needs, naming it."""
        ...

    def implied(self, cpu: str) -> frozenset[str]:
        """The kernel's names of the ISA extensions that code for `Target.cpu` may use, of what
        versions of Farrier before this one called so, too."""
        ...

    def figures(self, target: Target) -> Mapping[str, Any]:
        """The fields of `space.machine.Machine` in which a target differs from the defaults."""
        ...

    def llvm(self, target: Target) -> LLVMOptions:
        """How LLVM makes code for a target."""
        ...


def backends() -> tuple[Backend, ...]:
    """All, Farrier's own first."""
    return (*_own().values(), *_others())


def backend_for(arch: str) -> Backend:
    """Who makes code for machines of an architecture. Raises UsageError where nobody does."""
    if arch in _own():
        return _own()[arch]
    for backend in _others():
        if arch in backend.archs:
            return backend
    known = sorted(arch for backend in backends() for arch in backend.archs)
    raise UsageError(
        f"no code generator for {arch}",
        hint=f"there are some for {', '.join(known)}; `farrier targets` lists machines",
    )


def backend_of(target: Target) -> Backend:
    """Who makes code for a target."""
    return backend_for(target.arch)


@functools.cache
def _own() -> Mapping[str, Backend]:
    from farrier.targets.arm import ARM
    from farrier.targets.x86 import X86

    own: tuple[Backend, ...] = (X86, ARM)
    return {arch: backend for backend in own for arch in backend.archs}


@functools.cache
def _others() -> tuple[Backend, ...]:
    """Those of other packages. To look for them reads every installed distribution."""
    return tuple(point.load() for point in importlib.metadata.entry_points(group=GROUP))
