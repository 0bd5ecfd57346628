"""The code generator, one of the roles of a backend: it compiles lowered kernels to objects, and
links these to a library that a device loads."""

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
    """A kernel's code as text for readers; a field is "" if the backend has no such text.
    `timeline` is JSON: the operations of the kernel over time as `events` in Chrome's trace format,
    the names of their `lanes`, and the clock `mhz`."""

    llvm: str = ""
    assembly: str = ""
    timeline: str = ""


class Plan(Protocol):
    """The memory plan and the calls of a model, before its kernels are linked. Each kind of backend
    has its own implementation."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """The size of each input in bytes, at the typical sizes of open (dynamic) dims."""
        ...

    @property
    def outputs(self) -> tuple[int, ...]: ...

    @property
    def params_bytes(self) -> int: ...

    @property
    def memory(self) -> MemoryPlan: ...

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The kernel calls of the model, in the order of execution."""
        ...

    @property
    def sizes(self) -> tuple[int, ...]:
        """The integer arguments of the entry point, at the typical sizes of open (dynamic) dims."""
        ...

    @property
    def symbols(self) -> set[str]:
        """The symbols of the kernels that the model calls."""
        ...

    def measured_entry(self, target: Target, name: str) -> bytes:
        """Return an object with an entry point `name` for timing: it runs at the typical sizes with
        whatever the memory contains, and makes no checks."""
        ...

    def parts(self, name: str) -> tuple[tuple[Launch, ...], ...]:
        """Return, for each kernel call of the model, its launches in program order. All launches
        together do the work of the entry point `name`."""
        ...

    def is_interface_compatible(self, other: Any) -> bool:
        """Check whether this plan has the same data-dependent sizes as `other`, and the same
        capacities (their upper limits, which callers pass)."""
        ...

    def size_arguments(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the integer arguments of the entry point for `sizes`, a mapping from symbols to
        values, in the order in which the entry point takes them."""
        ...


class CodeGeneration(Protocol):
    """The code generation of a backend, on whichever machine compiles.

    Code depends only on the arguments and on the versions of the tools, so an artifact can be
    reproduced byte by byte. The targets passed to the methods must belong to this backend; a kernel
    that cannot be compiled raises CompilerError.
    """

    def loop_passes(self, target: Target) -> tuple[str, ...]:
        """The names of the loop passes (`lower.passes.PASSES`) that lower a scheduled kernel for
        `target`, in order."""
        return ("partition-loops", "eliminate-dead-stores")

    def compile(self, functions: Sequence[Function], target: Target) -> list[bytes]:
        """Return objects that together define all of the lowered kernels `functions`, up to 16
        kernels in each object. The names of the kernels must differ."""
        ...

    def texts(self, function: Function, target: Target) -> CodeTexts:
        """Return a kernel's code as text for readers."""
        return CodeTexts()

    def instruction_texts(self, function: Function, target: Target) -> Mapping[str, str]:
        """Return a kernel's instructions as text, before the instruction passes and after each pass
        that changes them, keyed by the name of the stage. Raises CompilerError."""
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
        """Plan the memory of a model, with room for `threads` threads and for `target.threads`.
        `kernels` has the interface of each kernel, by the key of its task in the program. With a
        plan `beside`, the new plan shares the memory of that plan's constants and size
        arguments."""
        ...

    def assemble(
        self,
        planned: Any,
        objects: Sequence[bytes],
        target: Target,
        hot: Mapping[tuple[int, ...], Any],
    ) -> LinkedModel:
        """Link the kernels of a planned model, and pack its parameters. `hot` maps sizes of the
        dims to plans of the same model that are specialized for exactly these sizes, each planned
        with the previous plan as `beside`."""
        ...

    @property
    def library_kind(self) -> str:
        """The code-object kind of a linked library."""
        return HOST_CODE

    def library(self, objects: Sequence[bytes], symbols: Sequence[str], target: Target) -> bytes:
        """Return the linked library that a device loads to measure kernels: `objects` and the
        support code that they need. `symbols` are exported."""
        ...

    # -- measurement of single kernels

    def kernel_code(self, objects: Sequence[bytes], target: Target) -> Sequence[tuple[str, bytes]]:
        """Return the code that a device loads to measure single kernels, as pairs of code-object
        kind and content. The `objects` may define a kernel twice."""
        return ((self.library_kind, self.library(list(dict.fromkeys(objects)), (), target)),)

    def launches(self, kernel: Interface) -> tuple[Launch, ...]:
        """Return the launches that run a single kernel with fixed sizes."""
        return (Launch(kernel.name),)

    @property
    def has_steady_clock(self) -> bool:
        """True if the devices count the cycles of a simulated machine. Their times do not drift, so
        no reference kernel is measured to detect drift."""
        return False

    @property
    def packs_on_device(self) -> bool:
        """True if a kernel on the device converts the inputs of a measured kernel to the layouts
        that it reads. If false, this process converts the inputs and sends one copy for each
        layout."""
        return True
