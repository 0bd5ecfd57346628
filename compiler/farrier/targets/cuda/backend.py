"""The backend of the targets `cuda:sm_75` to `cuda:sm_120`: PTX for one architecture, which GPUs of
later architectures run too, except for that of sm_90a."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from farrier.errors import CompilerError
from farrier.ir.types import DType
from farrier.targets.code import CodeTexts
from farrier.targets.cuda.architectures import ARCH, architecture_of
from farrier.targets.describing import KnownMachine
from farrier.targets.driven.target import DrivenTarget, baseline
from farrier.targets.gpu.backend import GpuBackend
from farrier.targets.scheduling import Peaks
from farrier.targets.target import MemorySpace, ParallelAxis, Target
from farrier_device.cuda_library import CUBIN, GPU, LIBRARY, MOST_BLOCKS, MOST_THREADS, PTX
from farrier_device.describe import MachineDescription
from farrier_device.program import HOST

if TYPE_CHECKING:
    from farrier.artifact.code import CodeObject, ModelCode
    from farrier.intrinsics import TensorIntrinsic
    from farrier.intrinsics.fragments import FragmentProduct
    from farrier.intrinsics.warpgroups import WarpgroupProduct
    from farrier.ir.dim import Extent
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.measure import Runner
    from farrier.targets.gpu.device import Device, Limits
    from farrier.targets.running import Loaded
    from farrier_device.devices.device import AnyDevice

_ALIGNMENT = 256  # Bytes: that of the driver's own allocations.


@dataclasses.dataclass(frozen=True, slots=True)
class CudaTarget(DrivenTarget):
    """An NVIDIA GPU as a target, given by its name or by an architecture, which stands for any GPU
    of that architecture."""

    @property
    def architecture(self) -> str:
        """The architecture of the generated code."""
        return architecture_of(self.cpu, self.features)

    @property
    def required_features(self) -> frozenset[str]:
        # Later architectures run the code too (see `why_not_here`), so the machine need not have
        # this name.
        return frozenset()

    @property
    def precision_features(self) -> frozenset[str]:
        from farrier.targets.cuda.tensor_cores import FEATURES

        return FEATURES[self.architecture]

    @property
    def backend(self) -> CudaBackend:
        return BACKEND

    @property
    def spaces(self) -> tuple[MemorySpace, ...]:
        return MemorySpace(HOST), MemorySpace(GPU, _ALIGNMENT)

    @property
    def axes(self) -> tuple[ParallelAxis, ...]:
        return ParallelAxis("blocks", MOST_BLOCKS), ParallelAxis("threads", MOST_THREADS)


class CudaBackend(GpuBackend):
    """The backend for CUDA. A kernel runs on the GPU if the renderer supports it, and otherwise on
    the host."""

    space_of_device = GPU
    kernel_kind = PTX
    library_kind = LIBRARY
    target_type = CudaTarget
    name = "cuda"
    archs = frozenset({ARCH})

    @property
    def machines(self) -> Mapping[str, KnownMachine]:
        from farrier.targets.cuda.machines import MACHINES

        return MACHINES

    def target(self, machine: MachineDescription) -> CudaTarget:
        from farrier.targets.names import parse_target

        host = parse_target(machine.host) if machine.host else baseline()
        return CudaTarget(f"{ARCH}-nvidia-cuda", machine.cpu, machine.features, host=host)

    @property
    def precisions(self) -> Mapping[str, frozenset[str]]:
        nothing = frozenset[str]()
        return {"f32": nothing, "f16": nothing, "bf16": nothing, "tf32": frozenset({"mma_tf32"})}

    def byte_factors(self, target: Target) -> DType | None:
        totals = {product.total for product in self.products(target)}
        return DType.U8 if DType.I32 in totals else None

    @property
    def intrinsics(self) -> Sequence[TensorIntrinsic]:
        from farrier.targets.cuda.tensor_cores import INTRINSICS

        return INTRINSICS

    # -- running its code on this machine

    def why_not_here(self, arch: str, cpu: str, features: Sequence[str]) -> str:
        from farrier_device.devices.cuda import why_not_on

        return why_not_on(architecture_of(cpu, features))

    def why_not_measured_here(self, target: Target) -> str:
        from farrier.targets.cuda.machines import figures_of
        from farrier_device.nvidia import find_gpu

        why = super().why_not_measured_here(target)
        if why or figures_of(target.cpu) is None:
            return why
        gpu = find_gpu()
        is_it = figures_of(gpu.model) == figures_of(target.cpu)
        return "" if is_it else f"the GPU of this machine is {gpu.model}"

    def runner(self) -> Runner:
        from farrier.targets.cuda.runner import CudaRunner

        return CudaRunner()

    def open(self, code: ModelCode) -> tuple[AnyDevice, str]:
        from farrier_device.devices.cuda import CudaDevice

        gpu = CudaDevice()
        texts = {
            module.path: module.content.decode() for module in code.objects if module.kind == PTX
        }
        cubins = {
            module.path.removesuffix(CUBIN) + PTX: module.content
            for module in code.objects
            if module.kind == CUBIN
        }
        gpu.load_modules(texts, cubins)
        return gpu, gpu.name

    @property
    def code_kinds(self) -> frozenset[str]:
        return super().code_kinds | {CUBIN}

    # -- the steps of a compilation

    def why_not_expressible(
        self, program: TensorProgram | Function, lowered: Callable[[], Function], target: Target
    ) -> str:
        from farrier.targets.cuda.expressible import why_not

        return why_not(program, lowered, _architecture(target))

    def device(self, target: Target) -> tuple[Limits, Device]:
        from farrier.targets.cuda.expressible import LIMITS
        from farrier.targets.cuda.machines import ranked_by

        return LIMITS, ranked_by(target.cpu, target.features).device()

    def peaks(self, target: Target, threads: int) -> Peaks:
        from farrier.targets.cuda.machines import figures_of

        figures = figures_of(target.cpu)
        return Peaks() if figures is None else Peaks(figures.operations, figures.bandwidth)

    def products(self, target: Target) -> Sequence[FragmentProduct]:
        from farrier.targets.cuda.tensor_cores import products_of

        return products_of(_architecture(target))

    def warpgroup_products(self, target: Target) -> Sequence[WarpgroupProduct]:
        from farrier.targets.cuda.tensor_cores import warpgroup_products_of

        return warpgroup_products_of(_architecture(target))

    def measured_peaks(self, loaded: Loaded) -> Peaks:
        from farrier.targets.cuda.roofline import measured
        from farrier.targets.driven.entry import DrivenEntry
        from farrier_device.devices.cuda import CudaDevice

        assert isinstance(loaded, DrivenEntry)
        gpu = loaded.device(GPU)
        assert isinstance(gpu, CudaDevice)
        return measured(gpu)

    def render(self, function: Function, target: Target) -> str:
        from farrier.targets.cuda.ptx import ptx_of
        from farrier.targets.cuda.tensor_cores import require_features

        architecture = _architecture(target)
        require_features(function, architecture)
        return ptx_of(self._module(function, target), architecture)

    def _module(self, function: Function, target: Target) -> str:
        from farrier.targets.cuda.kernel_text import render
        from farrier.targets.gpu.inexpressible import InexpressibleError

        try:
            return render(function, _architecture(target))
        except InexpressibleError as error:
            message = f"kernel {function.name} for CUDA: {error.reason}"
            raise CompilerError(message, hint=error.hint) from error

    def texts(self, function: Function, target: Target) -> CodeTexts:
        return CodeTexts(
            llvm=self._module(function, target), assembly=self.render(function, target)
        )

    def files(self, kernels: Mapping[str, str]) -> Sequence[CodeObject]:
        from farrier.artifact.code import CodeObject
        from farrier.targets.cuda.assembler import cubins

        texts = super().files(kernels)
        assembled = cubins(kernels)
        return [
            *texts,
            *(
                CodeObject(text.path.removesuffix(PTX) + CUBIN, CUBIN, text.entries, content)
                for text, content in zip(texts, assembled.values(), strict=False)
            ),
        ]

    def scratch_bytes(self, function: Function) -> Extent:
        from farrier.targets.cuda.kernel_text import scratch_bytes

        return scratch_bytes(function)


def _architecture(target: Target) -> str:
    assert isinstance(target, CudaTarget)
    return target.architecture


BACKEND = CudaBackend()
