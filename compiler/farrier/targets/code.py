"""The code of a backend, one of its roles: final loops → objects → a library that is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from farrier_device.library_form import HOST_CODE
from farrier_device.measurement import Launch

if TYPE_CHECKING:
    from farrier.artifact.calls import CallRecord
    from farrier.ir.loop import Function
    from farrier.partition.plan_memory import MemoryPlan
    from farrier.partition.program import DriverProgram
    from farrier.targets.interface import Interface
    from farrier.targets.linked import LinkedModel
    from farrier.targets.target import Target


@dataclasses.dataclass(frozen=True, slots=True)
class CodeTexts:
    """A kernel's code as text; "" for what a backend does not have. The `timeline` is JSON: what
    happens in the kernel over time, as `events` of Chrome's trace format in `lanes`, at `mhz`."""

    llvm: str = ""
    assembly: str = ""
    timeline: str = ""


class Plan(Protocol):
    """The places of everything in a model, before its code is linked. Backends have their own."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """The bytes of each, at the typical sizes."""
        ...

    @property
    def outputs(self) -> tuple[int, ...]: ...

    @property
    def params_bytes(self) -> int: ...

    @property
    def memory(self) -> MemoryPlan: ...

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The calls of kernels in the order of execution."""
        ...

    @property
    def sizes(self) -> tuple[int, ...]:
        """The integer arguments of the entry, at the typical sizes."""
        ...

    @property
    def symbols(self) -> set[str]:
        """The kernels that it calls."""
        ...

    def measured_entry(self, target: Target, name: str) -> bytes:
        """Return the object of an entry point for any memory, at the typical sizes: nothing is
        checked."""
        ...

    def parts(self, name: str) -> tuple[tuple[Launch, ...], ...]:
        """Return the launches of each of `calls`, which together do the work of that entry point,
        in the order of the text."""
        ...

    def is_interface_compatible(self, other: Any) -> bool:
        """Check whether it has the capacities and the sizes decided by data of another plan."""
        ...

    def size_arguments(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the arguments of a caller for `sizes`, by symbol, in the entry's order."""
        ...


class CodeGeneration(Protocol):
    """Makes code for a target, on whichever machine compiles.

    Code is a function of its arguments and of the versions of the tools: an artifact can be made
    again byte by byte. A target must be one of the backend's own; an error in a kernel is a
    CompilerError.
    """

    def loop_passes(self, target: Target) -> tuple[str, ...]:
        """The names of the passes that the scheduled loops of a kernel go through
        (`lower.passes.PASSES`), in order."""
        return ("partition-loops", "eliminate-dead-stores")

    def compile(self, functions: Sequence[Function], target: Target) -> list[bytes]:
        """Return objects that together define every kernel of final loops, one for up to 16; their
        names must differ."""
        ...

    def texts(self, function: Function, target: Target) -> CodeTexts:
        """Return a kernel's code as text, to be read by people."""
        return CodeTexts()

    def instruction_texts(self, function: Function, target: Target) -> Mapping[str, str]:
        """Return a kernel's instructions as text, before the passes on them and after each that
        changes them, by a name. Raises CompilerError."""
        return {}

    def interface(self, function: Function) -> Interface:
        """Return the interface of a kernel for its callers."""
        ...

    def plan(
        self,
        program: DriverProgram,
        kernels: Mapping[str, Interface],
        target: Target,
        threads: int,
        beside: Any = None,
    ) -> Plan:
        """Place the memory of a model, with room for `threads` threads and for `target.threads`.
        `kernels` are by task key; constants and sizes share the memory of those of the plan
        `beside`."""
        ...

    def assemble(
        self,
        planned: Any,
        objects: Sequence[bytes],
        target: Target,
        hot: Mapping[tuple[int, ...], Any],
    ) -> LinkedModel:
        """Link a model's kernels, and pack its parameters. `hot` are plans of the same model for
        single sizes of its dims, each planned with the previous one as `beside`."""
        ...

    @property
    def library_kind(self) -> str:
        """The kind of a library as a code object."""
        return HOST_CODE

    def library(self, objects: Sequence[bytes], symbols: Sequence[str], target: Target) -> bytes:
        """Return the content that a device loads to measure: the objects, linked with what they
        need. `symbols` are to be seen from outside."""
        ...

    # -- kernels that are measured by themselves

    def kernel_code(self, objects: Sequence[bytes], target: Target) -> Sequence[tuple[str, bytes]]:
        """Return the code that a device loads to measure kernels by themselves, as code objects by
        kind. `objects` define the kernels, maybe twice."""
        return ((self.library_kind, self.library(list(dict.fromkeys(objects)), (), target)),)

    def launches(self, kernel: Interface) -> tuple[Launch, ...]:
        """Return the launches of a kernel by itself, at fixed sizes."""
        return (Launch(kernel.name),)

    @property
    def has_steady_clock(self) -> bool:
        """True if its devices count cycles of a model of the machine: no reference kernel shows
        whether they kept their pace."""
        return False

    @property
    def packs_on_device(self) -> bool:
        """True if a kernel on the device lays out what a measured kernel wants in another layout;
        otherwise it is laid out here, and sent once for each layout."""
        return True
