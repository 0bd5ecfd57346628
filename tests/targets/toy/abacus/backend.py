"""An abacus as a target, and the steps of a compilation for it."""

from __future__ import annotations

import dataclasses

from farrier.errors import ArtifactError, UsageError
from farrier.targets import Backend, KnownMachine, Target
from farrier.targets.target import MemorySpace
from farrier_device.describe import MachineDescription

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
class AbacusTarget(Target):
    """An abacus of any make."""

    @property
    def backend(self):
        return BACKEND

    @property
    def threads(self):
        return 1

    @property
    def spaces(self):
        return MemorySpace("host"), MemorySpace("frame", alignment=128)


class AbacusBackend(Backend):
    """Two spaces, and no code generator for the driver."""

    target_type = AbacusTarget
    name = "abacus"
    archs = frozenset({"abacus"})
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

    @property
    def code_kinds(self):
        from abacus.program import KIND

        return frozenset({KIND})

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

    # -- the steps of a compilation

    @property
    def rules(self):
        from abacus.rule import RULE

        return frozenset({RULE})

    def space(self, program, target, threads):
        from abacus.rule import space

        return space(program, target, threads)

    def compile(self, functions, target):
        from abacus.program import written

        return [written(functions)]

    def interface(self, function):
        from farrier.targets.interface import Interface

        return Interface(function.name, function.params, function.dims, 0, 0)

    def plan(self, program, kernels, target, threads, beside=None):
        from abacus.package import plan

        return plan(program, kernels, target, threads)

    def assemble(self, planned, objects, target, hot):
        from abacus.package import assemble

        return assemble(planned, objects)

    def library(self, objects, symbols, target):
        from abacus.program import joined

        return joined(objects)


BACKEND = AbacusBackend()
