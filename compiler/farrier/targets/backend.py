"""Who makes code for a kind of hardware: the protocol, and the registry.

A backend of another package registers itself as an entry point of the group `farrier.backends`,
whose object is an instance of `Backend`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from farrier.errors import UsageError
from farrier.plugins import BACKENDS, plugins
from farrier_device.arch import in_64_bits
from farrier_device.describe import MachineDescription

if TYPE_CHECKING:
    from farrier.artifact.calls import CallRecord
    from farrier.intrinsics import TensorIntrinsic
    from farrier.ir.graph import Graph
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.ir.types import DType
    from farrier.measure import Runner
    from farrier.partition.plan_memory import MemoryPlan
    from farrier.partition.program import DriverProgram
    from farrier.passes import Settings
    from farrier.passes.algorithm import Layer
    from farrier.passes.passes import Pass
    from farrier.records import RuleId
    from farrier.space import Space
    from farrier.targets.interface import Interface
    from farrier.targets.linked import LinkedModel
    from farrier.targets.target import Target

# Farrier's own, by architecture: modules with a BACKEND, imported when one of their machines is
# named. Nothing else in the core knows them.
_OWN = {
    "x86_64": "farrier.targets.x86",
    "aarch64": "farrier.targets.arm",
    "riscv64": "farrier.targets.riscv",
}


@dataclasses.dataclass(frozen=True, slots=True)
class KnownMachine:
    """A machine that has a name. `source` says where its figures are from. A `generic` one stands
    for an instruction set: its code runs on every machine that has it, and its cores and caches are
    a guess."""

    description: MachineDescription
    source: str
    generic: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Peaks:
    """Operations on f32 a second, and bytes a second from memory; 0 for what is not known."""

    operations: float = 0.0
    bandwidth: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class CodeTexts:
    """A kernel's code as text; "" for what a backend does not have."""

    llvm: str = ""
    assembly: str = ""


class Plan(Protocol):
    """Where everything of a model lies, before its code is linked. Backends have their own."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """Bytes of each, at the typical sizes."""
        ...

    @property
    def outputs(self) -> tuple[int, ...]: ...

    @property
    def params_bytes(self) -> int: ...

    @property
    def memory(self) -> MemoryPlan: ...

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """In the order of execution."""
        ...

    @property
    def sizes(self) -> tuple[int, ...]:
        """What the entry takes beside pointers, at the typical sizes."""
        ...

    @property
    def symbols(self) -> set[str]:
        """The kernels that it calls."""
        ...

    def measured_entry(self, target: Target, name: str) -> bytes:
        """The object of an entry point for any memory, at the typical sizes: nothing is checked."""
        ...

    def stands_for(self, other: Any) -> bool:
        """Whether it takes and finds out, beside sizes of inputs, what another plan does."""
        ...

    def given(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """What a caller says of `sizes`, by symbol, in the entry's order."""
        ...


class Loaded(Protocol):
    """A model's code in this process, ready to be called."""

    @property
    def entry(self) -> Callable[[Any, int], int]:
        """Run the model: take the addresses of its arguments, as a ctypes array, and `context`;
        return 0, a positive code for a failure, or -1 - n where check n of the manifest failed."""
        ...

    @property
    def context(self) -> int:
        """What the entry takes beside its arguments."""
        ...

    def workspace_bytes(self, sizes: int) -> int:
        """The workspace that a call needs, for the sizes (i64) at an address."""
        ...

    def close(self) -> None:
        """End its threads and let go of its memory."""
        ...


class Backend(Protocol):
    """Makes code for one family of machines, and runs it.

    A backend is a subclass; what has an answer here is what a machine without specialities says.
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

    @property
    def target_type(self) -> type[Target]:
        """The class of its targets."""
        ...

    # -- running its code on this machine

    def why_not_here(self, arch: str, cpu: str, features: Sequence[str]) -> str:
        """Why this machine cannot run code for targets with that `Target.arch`, `cpu` and
        `features`: a clause, "" where it can."""
        ...

    def runner(self) -> Runner:
        """Measure its code on this machine."""
        ...

    def load(self, library: bytes, entry: str, threads: int) -> Loaded:
        """The entry point of a model, in this process, with so many threads. Raises ArtifactError
        where the library is damaged."""
        ...

    # -- what a target can do, for passes and rules

    @property
    def precisions(self) -> Mapping[str, frozenset[str]]:
        """What contractions may multiply in, as `CompileOptions.precision` names it, and the
        features of a target that each takes."""
        return {"f32": frozenset()}

    @property
    def intrinsics(self) -> Sequence[TensorIntrinsic]:
        """All that its machines can do to whole tiles."""
        return ()

    def byte_factors(self, target: Target) -> DType | None:
        """The type of the first factor where its passes multiply bytes by i8: bytes, or what they
        are widened to. None where such products stay those of floats."""
        return None

    def peaks(self, target: Target, threads: int) -> Peaks:
        """The bounds of what so many threads can do, for a roofline to show."""
        return Peaks()

    def floor_ns(self, program: TensorProgram | Function, target: Target, threads: int) -> int:
        """The nanoseconds that no call of a kernel can beat on any machine of the target's kind: a
        device that answers less did not run the code. 0 where nothing is known."""
        return 0

    # -- its part of a compilation, in the order of the steps

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the passes that a graph goes through (`passes.PASSES`, `own_passes`), in
        order."""
        ...

    @property
    def own_passes(self) -> Mapping[str, Pass]:
        """The passes on graphs that it adds to `passes.PASSES`, by name; one of the same name
        stands in the place of the other."""
        return {}

    def layers(self, graph: Graph, settings: Settings) -> Sequence[Layer]:
        """Return the convolutions of a graph for which its passes choose an algorithm, in order.
        Where it returns any, `passes` has the pass `algorithm.CHOICE`."""
        return ()

    def loop_passes(self, target: Target) -> tuple[str, ...]:
        """The names of the passes that the scheduled loops of a kernel go through
        (`lower.passes.PASSES`), in order."""
        return ("partition-loops", "eliminate-dead-stores")

    @property
    def rules(self) -> frozenset[RuleId]:
        """The rules whose spaces `space` gives, in the versions that it has of them."""
        ...

    def space(self, program: TensorProgram | Function, target: Target, threads: int) -> Space:
        """The schedule space of one kernel run by `threads` threads."""
        ...

    def compile(self, functions: Sequence[Function], target: Target) -> list[bytes]:
        """Objects that together define every scheduled kernel, one for up to 16; their names must
        differ. Raises CompilerError."""
        ...

    def texts(self, function: Function, target: Target) -> CodeTexts:
        """What there is to read of a scheduled kernel's code. Raises CompilerError."""
        return CodeTexts()

    def interface(self, function: Function) -> Interface:
        """What whoever calls a scheduled kernel has to know of it."""
        ...

    def plan(
        self,
        program: DriverProgram,
        kernels: Mapping[str, Interface],
        target: Target,
        threads: int,
        beside: Any = None,
    ) -> Plan:
        """Place the memory of a model, with room for `threads` threads and for every core of the
        target. `kernels` are by task key; constants and sizes are placed beside those of the
        plan `beside`."""
        ...

    def assemble(
        self,
        planned: Any,
        objects: Sequence[bytes],
        target: Target,
        hot: Mapping[tuple[int, ...], Any],
    ) -> LinkedModel:
        """Link a model's kernels, and pack its parameters. `hot` are plans of the same model,
        each beside the one before, for single sizes of its dims."""
        ...

    def library(self, objects: Sequence[bytes], symbols: Sequence[str], target: Target) -> bytes:
        """What a device loads to measure: the objects, linked with what they need. `symbols` are to
        be seen from outside."""
        ...


def own_backends() -> tuple[Backend, ...]:
    """Farrier's own."""
    return tuple(map(_own, dict.fromkeys(_OWN.values())))


@functools.cache
def backends() -> tuple[Backend, ...]:
    """All, Farrier's own first. Raises UsageError for one of another package that cannot be
    loaded."""
    return (*own_backends(), *_others())


def backend_for(arch: str) -> Backend:
    """Who makes code for machines of an architecture. Raises UsageError where nobody does."""
    if arch in _OWN:
        return _own(_OWN[arch])
    for backend in _others():
        if arch in backend.archs:
            return backend
    if wide := in_64_bits(arch):
        raise UsageError(
            f"no code generator for {arch}, a 32-bit system: 64-bit Linux ({wide}) and a 64-bit "
            "Python are needed",
            hint="install a 64-bit system, which most of these processors can run",
        )
    known = sorted(arch for backend in backends() for arch in backend.archs)
    raise UsageError(
        f"no code generator for {arch}",
        hint=f"there are some for {', '.join(known)}; `farrier targets` lists machines",
    )


@functools.cache
def _own(module: str) -> Backend:
    backend: Backend = importlib.import_module(module).BACKEND
    return backend


@functools.cache
def _others() -> tuple[Backend, ...]:
    """Those of other packages. To look for them reads every installed distribution."""
    found = plugins(BACKENDS, "backend", Backend, "a subclass of Backend")  # type: ignore[type-abstract]
    return tuple(plugin.made for plugin in found)
