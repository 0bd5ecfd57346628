"""The backend of the target `webgpu`: any adapter, within WebGPU's default limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farrier.errors import CompilerError
from farrier.targets.code import CodeTexts
from farrier.targets.describing import KnownMachine
from farrier.targets.driven.target import DrivenTarget, baseline
from farrier.targets.gpu.backend import GpuBackend
from farrier.targets.scheduling import Peaks
from farrier.targets.target import MemorySpace, ParallelAxis, Target
from farrier_device.describe import MachineDescription
from farrier_device.program import HOST
from farrier_device.webgpu_library import F16, GPU, LIBRARY, SUBGROUPS, WGSL

if TYPE_CHECKING:
    from farrier.artifact.code import ModelCode
    from farrier.intrinsics import TensorIntrinsic
    from farrier.ir.dim import Extent
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.measure import Runner
    from farrier.partition.program import DriverProgram
    from farrier.targets.driven.package import Plan
    from farrier.targets.gpu.device import Device, Limits
    from farrier.targets.interface import Interface
    from farrier.targets.running import Loaded
    from farrier_device.devices.device import AnyDevice

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
class WebGpuTarget(DrivenTarget):
    """A GPU that is used through WebGPU, as a target. It is either a GPU of a known name, or
    `webgpu`, which stands for any WebGPU adapter."""

    @property
    def backend(self) -> WebGpuBackend:
        return BACKEND

    @property
    def spaces(self) -> tuple[MemorySpace, ...]:
        return MemorySpace(HOST), MemorySpace(GPU, _ALIGNMENT)

    @property
    def axes(self) -> tuple[ParallelAxis, ...]:
        return ParallelAxis("blocks", _BLOCKS), ParallelAxis("threads", _THREADS)


class WebGpuBackend(GpuBackend):
    """The backend for WebGPU. A kernel runs on the GPU if WGSL can express it, and otherwise on the
    host."""

    space_of_device = GPU
    kernel_kind = WGSL
    library_kind = LIBRARY
    target_type = WebGpuTarget
    name = "webgpu"
    archs = frozenset({"webgpu"})

    @property
    def machines(self) -> Mapping[str, KnownMachine]:
        from farrier.targets.webgpu.machines import MACHINES

        with_f16, with_subgroups = (
            dataclasses.replace(_ANY, features=(each,)) for each in (F16, SUBGROUPS)
        )
        return {
            "webgpu": KnownMachine(_ANY, _LIMITS, generic=True),
            "webgpu:f16": KnownMachine(with_f16, f"{_LIMITS}; and {F16}", generic=True),
            "webgpu:subgroups": KnownMachine(
                with_subgroups, f"{_LIMITS}; and {SUBGROUPS}", generic=True
            ),
            **MACHINES,
        }

    def target(self, machine: MachineDescription) -> WebGpuTarget:
        from farrier.targets.names import parse_target

        triple = "webgpu-unknown-unknown"
        host = parse_target(machine.host) if machine.host else baseline()
        return WebGpuTarget(triple, machine.cpu, machine.features, host=host)

    @property
    def intrinsics(self) -> Sequence[TensorIntrinsic]:
        from farrier.intrinsics.exchanges import declared
        from farrier.targets.webgpu.subgroups import EXCHANGED

        return declared(EXCHANGED, SUBGROUPS)

    # -- running its code on this machine

    def why_not_here(self, arch: str, cpu: str, features: Sequence[str]) -> str:
        from farrier_device.adapters import NoAdapterError, find_adapter

        try:
            adapter = find_adapter()
        except NoAdapterError as error:
            return str(error)
        missing = sorted(set(features) - set(adapter.features))
        has = ", ".join(adapter.features) or "no optional feature"
        needs = ", ".join(missing)
        return f"{adapter.name} has {has}, and the code needs {needs}" if missing else ""

    def why_not_measured_here(self, target: Target) -> str:
        from farrier.targets.webgpu.machines import figures_of
        from farrier_device.adapters import NoAdapterError, find_adapter

        why = super().why_not_measured_here(target)
        if why or figures_of(target.cpu) is None:
            return why
        try:
            adapter = find_adapter()
        except NoAdapterError as error:
            return str(error)
        if adapter.is_emulated:
            return f"this machine has no GPU, only {adapter.name}, which is software"
        is_it = figures_of(adapter.model) == figures_of(target.cpu)
        return "" if is_it else f"the GPU of this machine is {adapter.name}"

    def runner(self) -> Runner:
        from farrier.targets.webgpu.runner import WebGpuRunner

        return WebGpuRunner()

    def open(self, code: ModelCode) -> tuple[AnyDevice, str]:
        from farrier_device.devices.webgpu import WebGpuDevice

        assert code.program is not None
        gpu = WebGpuDevice(has_open_sizes=bool(code.program.dims or code.program.counted))
        gpu.load_modules(
            {
                module.path: module.content.decode(errors="replace")
                for module in code.objects
                if module.kind == WGSL
            }
        )
        return gpu, gpu.name

    def rates(self, target: Target) -> Mapping[str, Peaks]:
        from farrier.targets.webgpu.machines import figures_of

        figures = figures_of(target.cpu)
        host = self.parts(target).get(HOST)
        if figures is None or host is None:
            return {}
        here = host.backend.peaks(host, host.threads)
        if figures.host:  # Both are parts of one chip, and share its memory.
            here = dataclasses.replace(here, bandwidth=figures.bandwidth)
        return {HOST: here, GPU: self.peaks(target, 1)}

    def peaks(self, target: Target, threads: int) -> Peaks:
        from farrier.targets.webgpu.machines import figures_of

        figures = figures_of(target.cpu)
        return Peaks() if figures is None else Peaks(figures.operations, figures.bandwidth)

    def measured_peaks(self, loaded: Loaded) -> Peaks:
        from farrier.targets.driven.entry import DrivenEntry
        from farrier.targets.webgpu.roofline import measured
        from farrier_device.devices.webgpu import WebGpuDevice

        assert isinstance(loaded, DrivenEntry)
        gpu = loaded.device(GPU)
        assert isinstance(gpu, WebGpuDevice)
        return measured(gpu)

    # -- the steps of a compilation

    def why_not_expressible(
        self, program: TensorProgram | Function, lowered: Callable[[], Function], target: Target
    ) -> str:
        from farrier.targets.webgpu.expressible import why_not

        return why_not(program, lowered, F16 in target.features)

    def why_not_on_device(self, program: TensorProgram | Function, target: Target) -> str:
        from farrier.targets.webgpu.expressible import why_slow

        return super().why_not_on_device(program, target) or why_slow(program)

    def loop_passes(self, target: Target) -> tuple[str, ...]:
        words = "write-whole-words-but-f16" if F16 in target.features else "write-whole-words"
        return (*super().loop_passes(target), words)

    def device(self, target: Target) -> tuple[Limits, Device]:
        from farrier.ir.threads import SUBGROUP_SIZE
        from farrier.ir.types import DType
        from farrier.targets.gpu.device import LEAST, USUAL
        from farrier.targets.webgpu.machines import figures_of
        from farrier.targets.webgpu.subgroups import SHARED_BYTES

        figures = figures_of(target.cpu)
        packed = LEAST.packed - {DType.F16} if F16 in target.features else LEAST.packed
        limits = dataclasses.replace(LEAST, packed=packed)
        if SUBGROUPS in target.features:
            shared = LEAST.workgroup_bytes - SHARED_BYTES
            limits = dataclasses.replace(limits, workgroup_bytes=shared, lanes=SUBGROUP_SIZE)
        return limits, USUAL if figures is None else figures.device()

    def render(self, function: Function, target: Target) -> str:
        from farrier.targets.gpu.inexpressible import InexpressibleError
        from farrier.targets.webgpu.subgroups import has_exchanges
        from farrier.targets.webgpu.wgsl import render

        if SUBGROUPS not in target.features and has_exchanges(function.body):
            raise CompilerError(
                f"threads of kernel {function.name} exchange registers, which {target.cpu} does "
                f"not have the feature {SUBGROUPS} for",
                hint="compile for webgpu:subgroups",
            )
        try:
            return render(function, F16 in target.features)
        except InexpressibleError as error:
            message = f"kernel {function.name} for WebGPU: {error.reason}"
            raise CompilerError(message, hint=error.hint) from error

    def texts(self, function: Function, target: Target) -> CodeTexts:
        return CodeTexts(assembly=self.render(function, target))

    def scratch_bytes(self, function: Function) -> Extent:
        from farrier.targets.webgpu.wgsl import scratch_bytes

        return scratch_bytes(function)

    def plan(
        self,
        program: DriverProgram,
        kernels: Mapping[str, Interface],
        target: Target,
        threads: int,
        beside: Any = None,
    ) -> Plan:
        from farrier.targets.webgpu.sizes import check_sizes

        check_sizes(program, kernels)
        return super().plan(program, kernels, target, threads, beside)


BACKEND = WebGpuBackend()
