"""An abacus as a target, and the steps of a compilation for it."""

from __future__ import annotations

import dataclasses

from farrier.artifact.code import CodeObject
from farrier.errors import ArtifactError, UsageError
from farrier.targets import KnownMachine
from farrier.targets.driven.backend import DrivenBackend
from farrier.targets.driven.target import DrivenTarget
from farrier.targets.interface import Interface
from farrier.targets.target import MemorySpace
from farrier_device.describe import MachineDescription
from farrier_device.measurement import Launch

SMALL = MachineDescription(
    arch="abacus",
    cpu="beads",
    features=(),
    cores=1,
    l1_bytes=1 << 10,
    l2_bytes=1 << 12,
    l3_bytes=1 << 14,
    memory_bytes=1 << 30,
)


@dataclasses.dataclass(frozen=True, slots=True)
class AbacusTarget(DrivenTarget):
    """An abacus of any make, whose frame is a device."""

    @property
    def backend(self):
        return BACKEND

    @property
    def spaces(self):
        return MemorySpace("host"), MemorySpace("frame", alignment=128)


class AbacusBackend(DrivenBackend):
    """Kernels of floats alone run on the frame, all others on the table, whose code is the same."""

    target_type = AbacusTarget
    name = "abacus"
    archs = frozenset({"abacus"})
    space_of_device = "frame"
    kernel_kind = library_kind = "beads"
    passes = ("fold-constants", "simplify", "eliminate-dead-code", "fuse")

    @property
    def machines(self):
        return {"abacus": KnownMachine(SMALL, "made up for the tests")}

    def target(self, machine):
        if machine.cores != 1:
            raise UsageError(f"an abacus has one core, not {machine.cores}")
        return AbacusTarget("abacus-none-python", machine.cpu, machine.features)

    # -- running its code on this machine

    def why_not_here(self, arch, cpu, features):
        return ""  # Any Python runs it.

    def runner(self):
        from abacus.runner import InProcessRunner

        return InProcessRunner()

    def load(self, code, threads):
        from abacus.devices import FRAME, Frame, Table
        from abacus.program import Library
        from farrier_device.interpreted import InterpretedEntry

        [beads] = code.objects
        try:
            library = Library(beads.content)
        except ValueError as error:
            raise ArtifactError(f"these are no beads: {error}") from error
        devices = {"host": Table(library), FRAME: Frame(library)}
        return InterpretedEntry(code.program, devices, code.backend["workspace"])

    # -- where kernels run

    def parts(self, target):
        return {"host": target, self.space_of_device: target}

    def why_not_on_device(self, program, target):
        from farrier.ir.loop import Function
        from farrier.ir.types import DType

        is_nest = isinstance(program, Function)
        arrays = program.params if is_nest else (*program.inputs, *program.outputs)
        others = [each for each in arrays if each.dtype is not DType.F32]
        return f"{others[0].name} is {others[0].dtype}, and beads are f32" if others else ""

    def enclosed(self, content, space):
        return content  # The table reads the same objects.

    # -- measuring, on the table

    def kernel_code(self, objects, target):
        return ((self.library_kind, self.library(list(dict.fromkeys(objects)), (), target)),)

    def launches(self, kernel):
        return (Launch(kernel.name),)

    # -- the steps of a compilation

    @property
    def rules(self):
        from abacus.rule import RULE

        return frozenset({RULE})

    def space(self, program, target, threads):
        from abacus.rule import space

        return space(program, target, threads)

    def open(self, code):
        raise NotImplementedError("`load` opens both spaces")

    def render(self, function, target):
        from farrier.ir.printer import print_ir

        return print_ir(function)

    def interface(self, function):
        return Interface(function.name, function.params, function.dims, 0, 0)

    def plan(self, program, kernels, target, threads, beside=None):
        from abacus.package import plan

        return plan(program, kernels, target, threads)

    def assemble(self, planned, objects, target, hot):
        return super().assemble(planned.placed, objects, target, hot)

    def files(self, kernels):
        from farrier.targets.driven.objects import joined, written

        content = joined([written(kernels, {})])
        return [CodeObject("code/beads.json", self.kernel_kind, tuple(kernels), content)]


BACKEND = AbacusBackend()
