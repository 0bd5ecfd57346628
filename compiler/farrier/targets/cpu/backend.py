"""The common part of all CPU backends; each family of CPUs adds its instructions."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farrier.targets.backend import Backend
from farrier.targets.code import CodeTexts
from farrier.targets.cpu.target import as_cpu
from farrier.targets.scheduling import Peaks
from farrier_device import arch as arch_names
from farrier_device import describe
from farrier_device.library_form import HOST_CODE

if TYPE_CHECKING:
    from farrier.artifact.code import ModelCode
    from farrier.ir.graph import Graph
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.ir.types import DType
    from farrier.measure import Runner
    from farrier.partition.program import DriverProgram
    from farrier.passes import Settings
    from farrier.passes.algorithm import Layer
    from farrier.passes.passes import Pass
    from farrier.records import RuleId
    from farrier.space import Space
    from farrier.targets.cpu.assemble import Plan
    from farrier.targets.exporting import Exportable, Exported
    from farrier.targets.interface import Interface
    from farrier.targets.linked import LinkedModel
    from farrier.targets.running import Loaded
    from farrier.targets.target import Target


class CpuBackend(Backend):
    """The base class of CPU backends: register tiling, parallel loops on a thread pool, code
    generation by LLVM, and one ELF library for each model.

    Modules that only a compilation needs are imported within the methods, because loading an
    artifact imports this module too.
    """

    @abc.abstractmethod
    def implied(self, cpu: str) -> frozenset[str]:
        """Return the ISA extensions that code for the processor `cpu` (`Target.cpu`) may use,
        under the Linux kernel's names. `cpu` may also be a name that an earlier version of
        Farrier used."""

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

    @property
    def code_kinds(self) -> frozenset[str]:
        return frozenset({HOST_CODE})

    def threads(self, part: Mapping[str, Any]) -> tuple[int, int]:
        from farrier.targets.cpu.part import CpuPart

        cpu = CpuPart.of_json(part)
        return cpu.threads, cpu.max_threads

    def load(self, code: ModelCode, threads: int) -> Loaded:
        from farrier.targets.cpu.loaded import LoadedLibrary

        return LoadedLibrary(code, threads)

    def export(self, model: Exportable, form: str, board: str) -> Exported:
        from farrier.targets.cpu.c_library import export

        return export(model, form)

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

    def byte_factors(self, target: Target) -> DType | None:
        dot = as_cpu(target).integer_dot()
        return None if dot is None else dot.left

    def peaks(self, target: Target, threads: int) -> Peaks:
        machine = as_cpu(target).machine(threads)
        return Peaks(machine.peak * machine.threads, machine.memory_bandwidth)

    def floor_ns(self, program: TensorProgram | Function, target: Target, threads: int) -> int:
        from farrier.targets.cpu.floor import floor_ns

        return floor_ns(program, as_cpu(target), threads)

    def loop_passes(self, target: Target) -> tuple[str, ...]:
        from farrier.targets.cpu.lowering import loop_passes

        return loop_passes(counts_loops=as_cpu(target).instructions.counts_loops)

    @property
    def rules(self) -> frozenset[RuleId]:
        from farrier.targets.cpu.rules import IDS

        return IDS

    def space(self, program: TensorProgram | Function, target: Target, threads: int) -> Space:
        from farrier.targets.cpu.rules import for_program

        return for_program(program, as_cpu(target), threads)

    def compile(self, functions: Sequence[Function], target: Target) -> list[bytes]:
        from farrier.targets.cpu.codegen import compile_functions

        return compile_functions(functions, as_cpu(target))

    def texts(self, function: Function, target: Target) -> CodeTexts:
        from farrier.targets.cpu.codegen import assembly, emit_function

        cpu = as_cpu(target)
        text = emit_function(function, cpu)
        return CodeTexts(text, assembly(text, cpu))

    def instruction_texts(self, function: Function, target: Target) -> Mapping[str, str]:
        from farrier.targets.cpu.codegen import instruction_texts

        return instruction_texts(function, as_cpu(target))

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

        return assemble(planned, objects, as_cpu(target), hot)

    def library(self, objects: Sequence[bytes], symbols: Sequence[str], target: Target) -> bytes:
        from farrier.targets.cpu.codegen import library

        return library(objects, symbols, as_cpu(target))
