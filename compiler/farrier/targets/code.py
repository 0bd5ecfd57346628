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
        """Check whether `other`, another plan for the same model, could replace this plan without a
        change for callers: its data-dependent sizes and their capacities (upper limits that callers
        pass) must be equal to those of this plan."""
        ...

    def size_arguments(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the integer arguments of the entry point for `sizes`, a mapping from symbols to
        values, in the order in which the entry point takes them."""
        ...


class CodeGeneration(Protocol):
    """The code generation of a backend. It may run on any machine, not only on the target.

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
        """Plan the memory of a model. `kernels` maps the key of each task in `program` to the
        interface of its kernel. Memory that each thread needs separately is reserved for the larger
        of `threads` and `target.threads`.

        `beside` is an earlier plan for the same model, or None. With it, the new plan uses the same
        packed constants and the same order of size arguments, so that both plans can be linked into
        one library.
        """
        ...

    def assemble(
        self,
        planned: Any,
        objects: Sequence[bytes],
        target: Target,
        hot: Mapping[tuple[int, ...], Any],
    ) -> LinkedModel:
        """Link the compiled `objects` of a planned model, and pack its parameters.

        `hot` maps tuples of sizes to plans of the same model that are specialized for exactly these
        sizes. The code for these sizes is linked in addition to the general code. Each plan in
        `hot` must have been made with the preceding plan as `beside`.
        """
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
        kind and content. An object may occur several times in `objects`."""
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
        """True if the device itself converts the inputs of a measured kernel to the layouts that
        the kernel reads. If false, this process converts the inputs, and sends a separate copy to
        the device for each layout."""
        return True
