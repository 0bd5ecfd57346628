"""The target `webgpu`: any adapter, within WebGPU's default limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farrier.errors import ArtifactError
from farrier.targets.backend import Backend
from farrier.targets.code import CodeTexts
from farrier.targets.describing import KnownMachine
from farrier.targets.target import MemorySpace, ParallelAxis, Target
from farrier_device.describe import MachineDescription
from farrier_device.program import HOST
from farrier_device.webgpu_library import GPU

if TYPE_CHECKING:
    from farrier.artifact.code import ModelCode
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.measure import Runner
    from farrier.partition.program import DriverProgram
    from farrier.records import RuleId
    from farrier.space import Space
    from farrier.targets.interface import Interface
    from farrier.targets.linked import LinkedModel
    from farrier.targets.running import Loaded
    from farrier.targets.webgpu.code import Plan

# The figures of a processor, which a GPU's program does not ask for.
_ANY = MachineDescription(
    arch="webgpu",
    cpu="webgpu",
    features=(),
    cores=1,
    l1_bytes=16 << 10,
    l2_bytes=1 << 20,
    l3_bytes=0,
    memory_bytes=2 << 30,
)
# By the default limits: the offset of a binding is a multiple of the first.
_ALIGNMENT, _BLOCKS, _THREADS = 256, 65_535**2, 256
_LIMITS = "the default limits of the WebGPU specification: 8 storage buffers, 256 threads, 16 KiB"


@dataclasses.dataclass(frozen=True, slots=True)
class WebGpuTarget(Target):
    """An adapter, by its name; `webgpu` is any."""

    @property
    def backend(self) -> WebGpuBackend:
        return BACKEND

    @property
    def threads(self) -> int:
        """One thread of the host drives the GPU."""
        return 1

    @property
    def spaces(self) -> tuple[MemorySpace, ...]:
        return MemorySpace(HOST), MemorySpace(GPU, _ALIGNMENT)

    @property
    def axes(self) -> tuple[ParallelAxis, ...]:
        return ParallelAxis("blocks", _BLOCKS), ParallelAxis("threads", _THREADS)


class WebGpuBackend(Backend):
    """Every kernel runs on the GPU, and a program of copies and launches drives it."""

    target_type = WebGpuTarget
    name = "webgpu"
    archs = frozenset({"webgpu"})

    @property
    def machines(self) -> Mapping[str, KnownMachine]:
        return {"webgpu": KnownMachine(_ANY, _LIMITS, generic=True)}

    def target(self, machine: MachineDescription) -> WebGpuTarget:
        return WebGpuTarget("webgpu-unknown-unknown", machine.cpu, machine.features)

    # -- running its code on this machine

    def why_not_here(self, arch: str, cpu: str, features: Sequence[str]) -> str:
        from farrier_device.devices.device import DeviceError
        from farrier_device.devices.webgpu import WebGpuDevice

        try:
            WebGpuDevice().close()
        except DeviceError as error:
            return str(error)
        return ""

    @property
    def measures_kernels(self) -> bool:
        return False

    def runner(self) -> Runner:
        from farrier.targets.webgpu.runner import WebGpuRunner

        return WebGpuRunner()

    @property
    def code_kinds(self) -> frozenset[str]:
        from farrier_device.webgpu_library import WGSL

        return frozenset({WGSL})

    def load(self, code: ModelCode, threads: int) -> Loaded:
        from farrier.targets.webgpu.entry import WebGpuEntry
        from farrier_device.devices.device import DeviceError
        from farrier_device.devices.webgpu import WebGpuDevice

        if code.program is None or "workspace" not in code.backend:
            raise ArtifactError("the artifact has no program for its kernels: it is damaged")
        try:
            gpu = WebGpuDevice(has_open_sizes=bool(code.program.dims or code.program.counted))
            gpu.load_modules(module.content.decode(errors="replace") for module in code.objects)
        except DeviceError as error:
            raise ArtifactError(str(error)) from None
        return WebGpuEntry(code.program, gpu, code.backend["workspace"])

    # -- the steps of a compilation

    @property
    def passes(self) -> tuple[str, ...]:
        return (
            "fold-constants",
            "eliminate-common-subexpressions",
            "simplify",
            "eliminate-common-subexpressions",
            "fold-batch-norm",
            "recast-convolutions",
            "eliminate-dead-code",
            "widen-floats",
            "split-resizes",
            "fuse",
        )

    def loop_passes(self, target: Target) -> tuple[str, ...]:
        return ("eliminate-dead-stores", "lower-threads")

    @property
    def rules(self) -> frozenset[RuleId]:
        from farrier.targets.gpu.points import RULE

        return frozenset({RULE})

    def space(self, program: TensorProgram | Function, target: Target, threads: int) -> Space:
        from farrier.targets.gpu import points
        from farrier.targets.webgpu.wgsl import check_types

        check_types(program)
        return points.space(program)

    def compile(self, functions: Sequence[Function], target: Target) -> list[bytes]:
        from farrier.targets.webgpu.code import compiled

        return [compiled(functions)]

    def texts(self, function: Function, target: Target) -> CodeTexts:
        from farrier.targets.webgpu.wgsl import render

        return CodeTexts(assembly=render(function))

    def interface(self, function: Function) -> Interface:
        from farrier.targets.webgpu.code import interface

        return interface(function)

    def plan(
        self,
        program: DriverProgram,
        kernels: Mapping[str, Interface],
        target: Target,
        threads: int,
        beside: Any = None,
    ) -> Plan:
        from farrier.targets.webgpu.code import plan

        return plan(program, kernels, target, threads, beside)

    def assemble(
        self,
        planned: Plan,
        objects: Sequence[bytes],
        target: Target,
        hot: Mapping[tuple[int, ...], Any],
    ) -> LinkedModel:
        from farrier.targets.webgpu.code import assemble

        return assemble(planned, objects)

    def library(self, objects: Sequence[bytes], symbols: Sequence[str], target: Target) -> bytes:
        from farrier.targets.webgpu.code import joined

        return joined(objects)


BACKEND = WebGpuBackend()
