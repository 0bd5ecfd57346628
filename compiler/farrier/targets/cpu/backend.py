"""What the backends of all CPUs share; each family of CPUs adds what its instructions are."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farrier.errors import CompilerError
from farrier.targets.backend import Backend, CodeTexts, backend_of
from farrier_device import arch as arch_names
from farrier_device import describe

if TYPE_CHECKING:
    from farrier.ir.graph import Graph
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.ir.types import DType
    from farrier.llvm import LLVMMachine
    from farrier.measure import Runner
    from farrier.partition.program import DriverProgram
    from farrier.passes import Settings
    from farrier.passes.algorithm import Layer
    from farrier.passes.passes import Pass
    from farrier.records import RuleId
    from farrier.space import Space
    from farrier.targets.backend import Loaded
    from farrier.targets.cpu.assemble import Plan
    from farrier.targets.cpu.codegen.builder import Instructions
    from farrier.targets.cpu.space.tile_unit import TileUnit
    from farrier.targets.interface import Interface
    from farrier.targets.linked import LinkedModel
    from farrier.targets.target import Target


class CpuBackend(Backend):
    """Register tiles, threads that share parallel loops, LLVM, and one ELF library a model.

    What is imported within methods is what only a compilation needs.
    """

    # -- what a family of CPUs says of itself

    @abc.abstractmethod
    def llvm(self, target: Target) -> LLVMMachine:
        """The target as LLVM knows it."""

    @abc.abstractmethod
    def instructions(self, target: Target) -> Instructions:
        """What the emitter may use beyond what any machine has."""

    @abc.abstractmethod
    def support(self, target: Target) -> str:
        """LLVM text of what the support library takes from the machine (`codegen.support`)."""

    @property
    def page_bytes(self) -> int:
        """The largest page that its Linux may use."""
        return 4096

    def tile_units(self, target: Target) -> Sequence[TileUnit]:
        """What multiplies tiles in registers of its machines."""
        return ()

    def has_tiles(self, left: DType, right: DType, target: Target) -> bool:
        from farrier.targets.cpu.space.tile_unit import unit_of

        return unit_of(left, right, target) is not None

    def tile_blocks(
        self, left: DType, right: DType, target: Target, outputs: int
    ) -> tuple[int, ...]:
        from farrier.targets.cpu.space.tile_unit import unit_of

        unit = unit_of(left, right, target)
        return () if unit is None else unit.blocks_of(outputs, target.lanes)

    def tile_rate(
        self, left: DType, right: DType, target: Target, lanes: int, rows: int, depth: int
    ) -> float:
        from farrier.targets.cpu.space.tile_unit import unit_of

        unit = unit_of(left, right, target)
        return 0.0 if unit is None else unit.rate(lanes, rows, depth)

    # -- running its code on this machine

    def why_not_here(self, arch: str, cpu: str, features: Sequence[str]) -> str:
        machine = describe.describe()
        if arch_names.in_64_bits(machine.arch):
            return (
                f"this is a 32-bit system ({machine.arch}), and it needs 64-bit Linux and a 64-bit "
                "Python"
            )
        if arch != machine.arch:
            return f"this machine is {machine.arch}"
        missing = sorted((self.implied(cpu) | set(features)) - set(machine.features))
        return f"this machine lacks {', '.join(missing)}" if missing else ""

    def runner(self) -> Runner:
        from farrier_device.runners.local import ChildRunner

        return ChildRunner()

    def load(self, library: bytes, entry: str, threads: int) -> Loaded:
        from farrier.targets.cpu.loaded import LoadedLibrary

        return LoadedLibrary(library, entry, threads)

    # -- the steps of a compilation

    @property
    def passes(self) -> tuple[str, ...]:
        from farrier.targets.cpu.passes import ORDER

        return ORDER

    @property
    def own_passes(self) -> Mapping[str, Pass]:
        from farrier.targets.cpu.passes import PASSES

        return PASSES

    def layers(self, graph: Graph, settings: Settings) -> Sequence[Layer]:
        from farrier.targets.cpu.passes.choose_algorithms import layers

        return layers(graph, settings)

    def loop_passes(self, target: Target) -> tuple[str, ...]:
        from farrier.targets.cpu.lowering import loop_passes

        return loop_passes(counts_loops=self.instructions(target).counts_loops)

    @property
    def rules(self) -> frozenset[RuleId]:
        from farrier.targets.cpu.rules import IDS

        return IDS

    def space(self, program: TensorProgram | Function, target: Target, threads: int) -> Space:
        from farrier.targets.cpu.rules import for_program

        return for_program(program, target, threads)

    def compile(self, functions: Sequence[Function], target: Target) -> list[bytes]:
        from farrier.targets.cpu.codegen import compile_functions

        return compile_functions(functions, target)

    def texts(self, function: Function, target: Target) -> CodeTexts:
        from farrier.targets.cpu.codegen import assembly, emit_function

        text = emit_function(function, target)
        return CodeTexts(text, assembly(text, target))

    def interface(self, function: Function) -> Interface:
        from farrier.targets.cpu.codegen import interface

        return interface(function)

    def plan(
        self,
        program: DriverProgram,
        kernels: Mapping[str, Interface],
        target: Target,
        threads: int,
        beside: Plan | None = None,
    ) -> Plan:
        from farrier.targets.cpu.assemble import plan

        return plan(program, kernels, target, threads, beside)

    def assemble(
        self,
        planned: Plan,
        objects: Sequence[bytes],
        target: Target,
        hot: Mapping[tuple[int, ...], Plan],
    ) -> LinkedModel:
        from farrier.targets.cpu.assemble import assemble

        return assemble(planned, objects, target, hot)

    def library(self, objects: Sequence[bytes], symbols: Sequence[str], target: Target) -> bytes:
        from farrier.targets.cpu.codegen import library

        return library(objects, symbols, target)


def cpu_backend_of(target: Target) -> CpuBackend:
    """The backend of a target that is a CPU. Raises CompilerError for any other."""
    found: Any = backend_of(target)
    if not isinstance(found, CpuBackend):
        raise CompilerError(f"{target.cpu} is no CPU")
    return found
