"""The backend and the target class of machines without an operating system."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farrier.errors import UsageError
from farrier.ir.types import DType
from farrier.targets.bare.boards import BOARDS, Board, emulated_board
from farrier.targets.bare.cores import CORES, DSP, MULTIPLIES, MVE, Core
from farrier.targets.cpu.backend import CpuBackend
from farrier.targets.cpu.target import CpuTarget, as_cpu
from farrier.targets.describing import KnownMachine
from farrier_device.boards.image import IMAGE
from farrier_device.describe import MachineDescription

if TYPE_CHECKING:
    from farrier.artifact.code import ModelCode
    from farrier.intrinsics import Dot, TensorIntrinsic
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.llvm import LLVMMachine
    from farrier.measure import Runner
    from farrier.partition.program import DriverProgram
    from farrier.passes.passes import Pass
    from farrier.targets.cpu.assemble import Plan
    from farrier.targets.cpu.units.tile_unit import TileUnit
    from farrier.targets.exporting import Exportable, Exported
    from farrier.targets.interface import Interface
    from farrier.targets.linked import LinkedModel
    from farrier.targets.llvm.builder import Instructions
    from farrier.targets.running import Loaded
    from farrier.targets.target import Target

OBJECT = "relocatable"
"""The kind of an object that a firmware is linked with."""

# The core has no caches. All memory responds in one or two cycles, so the whole memory is treated
# as a first-level cache.
_NEAR = 64 << 10
_VECTORS = 8  # The vector registers of MVE.


@dataclasses.dataclass(frozen=True, slots=True)
class BareTarget(CpuTarget):
    """A microcontroller core, with the sizes of its board's memories in bytes (0 if unknown)."""

    flash_bytes: int = 0
    ram_bytes: int = 0

    @property
    def backend(self) -> BareBackend:
        return BACKEND

    @property
    def known_core(self) -> Core:
        return CORES[self.tune]

    @property
    def figures(self) -> Mapping[str, Any]:
        return self.known_core.figures

    @property
    def llvm(self) -> LLVMMachine:
        from farrier.llvm import LLVMMachine

        core = self.known_core
        lacks_mve = core.has_mve and not self.has_vectors
        features = (*core.features, *(("-mve", "-mve.fp") if lacks_mve else ()))
        return LLVMMachine(self.triple, self.cpu, features, _FLAGS, True, core.abi)

    @property
    def instructions(self) -> Instructions:
        from farrier.targets.bare.intrinsics import rounded_high, to_nearest_i32
        from farrier.targets.llvm.builder import Instructions

        core = self.known_core
        return Instructions(
            counts_loops=True,
            index_bits=32,
            needs_alignment=core.needs_alignment,
            has_pool=False,
            fuses=bool(self.figures["fused"]),
            to_nearest_i32=to_nearest_i32 if core.has_dsp and core.has_floats else None,
            rounded_high=rounded_high if self.has_vectors else None,
        )

    def for_kernels(self, count: int) -> _SharedFlash:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(BareTarget)}
        return _SharedFlash(**fields, kernels=count)

    @property
    def code_weight(self) -> float:
        return self.known_core.code_weight

    @property
    def has_vectors(self) -> bool:
        """Check whether the core has vectors (MVE)."""
        return MVE in self.features

    @property
    def dots(self) -> Sequence[Dot]:
        from farrier.targets.bare.intrinsics import DOTS

        # Products of vectors take i8, to which `match-signedness` converts u8.
        return [dot for dot in DOTS if dot.left is DType.I8] if self.has_vectors else DOTS

    @property
    def tile_units(self) -> Sequence[TileUnit]:
        from farrier.targets.bare.vector_products import tile_units

        return tile_units(self)

    @property
    def support(self) -> str:
        # A support library is not needed: single kernels are not timed, and run on one thread.
        return ""


@dataclasses.dataclass(frozen=True, slots=True)
class _SharedFlash(BareTarget):
    """A microcontroller whose flash must hold the code of `kernels` kernels. Schedules for it weigh
    the size of code the more, the more kernels there are."""

    kernels: int = 1

    @property
    def code_weight(self) -> float:
        return self.known_core.code_weight * self.kernels


class BareBackend(CpuBackend):
    """The backend for microcontrollers. Kernels are scheduled as for a single-threaded CPU, and
    linked to one object file for a firmware."""

    target_type = BareTarget
    name = "bare"
    archs = frozenset(core.arch for core in CORES.values())

    @property
    def machines(self) -> Mapping[str, KnownMachine]:
        return {
            name: KnownMachine(_described(name, board), board.source)
            for name, board in BOARDS.items()
        }

    def target(self, machine: MachineDescription) -> BareTarget:
        board = BOARDS.get(machine.cpu)
        name = machine.cpu if board is None else board.core
        if name not in CORES or CORES[name].arch != machine.arch:
            raise UsageError(
                f"no core of {machine.arch} is called {machine.cpu!r}",
                hint=f"cpu is a board ({', '.join(BOARDS)}) or a core ({', '.join(CORES)})",
            )
        features = set(machine.features) & {MULTIPLIES, DSP, MVE}
        if MULTIPLIES not in features:
            raise UsageError(
                f"the machine {machine.cpu} lacks {MULTIPLIES}, a multiplication, which all code "
                "for microcontrollers uses",
                hint=f"a description lists it under features, and {DSP} where the core has that",
            )
        core = CORES[name]
        return BareTarget(
            triple=core.triple,
            cpu=core.cpu,
            features=tuple(sorted(features)),
            vector_bits=128 if MVE in features else 32,
            registers=_VECTORS if MVE in features else core.registers,
            cores=1,
            l1_bytes=_NEAR,
            l2_bytes=_NEAR,
            l3_bytes=_NEAR,
            tune=name,
            core=machine.cpu,
            flash_bytes=0 if board is None else board.flash.nbytes,
            # The memory sizes belong to a particular board, not to the class of devices.
            ram_bytes=machine.memory_bytes or (0 if board is None else board.ram.nbytes),
        )

    def implied(self, cpu: str) -> frozenset[str]:
        return frozenset()

    @property
    def intrinsics(self) -> Sequence[TensorIntrinsic]:
        from farrier.targets.bare.vector_products import INTRINSICS

        return INTRINSICS

    # -- running its code on this machine

    def why_not_here(self, arch: str, cpu: str, features: Sequence[str]) -> str:
        cores = [core for core in CORES.values() if (core.arch, core.cpu) == (arch, cpu)]
        if not cores:
            return f"no core of {arch} is called {cpu!r}: the artifact is damaged"
        core = cores[0]
        emulator = emulated_board(core).emulator
        assert emulator is not None
        if shutil.which(emulator.program) is None:
            return f"this machine has no emulator of it: Debian's {emulator.package} is one"
        return ""

    def runner(self) -> Runner:
        from farrier.targets.bare.runner import BoardRunner

        return BoardRunner()

    @property
    def code_kinds(self) -> frozenset[str]:
        return frozenset({OBJECT})

    def threads(self, part: Mapping[str, Any]) -> tuple[int, int]:
        return 1, 1

    def load(self, code: ModelCode, threads: int) -> Loaded:
        from farrier.targets.bare.loaded import EmulatedModel

        return EmulatedModel(code)

    def export(self, model: Exportable, form: str, board: str) -> Exported:
        from farrier.targets.bare.export import export

        return export(model, form, board)

    def firmware(self, machine: str) -> Exported:
        from farrier.targets.bare.resident import firmware

        return firmware(machine, self.machines[machine].description)

    # -- the steps of a compilation

    @property
    def passes(self) -> tuple[str, ...]:
        from farrier.targets.bare.passes import ORDER

        return ORDER

    @property
    def own_passes(self) -> Mapping[str, Pass]:
        from farrier.targets.bare.passes import PASSES

        return PASSES

    @property
    def takes_open_sizes(self) -> bool:
        return False  # All sizes must be known, since memory cannot be allocated at run time.

    def compile(self, functions: Sequence[Function], target: Target) -> list[bytes]:
        from farrier.targets.cpu.codegen.emit import emit_module

        # Modules remain text until all of them are known; functions that the model does not export
        # become local.
        return [emit_module(functions, as_cpu(target)).encode()]

    def plan(
        self,
        program: DriverProgram,
        kernels: Mapping[str, Interface],
        target: Target,
        threads: int,
        beside: Plan | None = None,
    ) -> Plan:
        from farrier.targets.bare.assemble import BarePlan, check_sizes
        from farrier.targets.cpu.assemble import plan

        check_sizes(program)
        return plan(program, kernels, target, 1, beside, BarePlan)

    def assemble(
        self,
        planned: Plan,
        objects: Sequence[bytes],
        target: Target,
        hot: Mapping[tuple[int, ...], Plan],
    ) -> LinkedModel:
        from farrier.targets.bare.assemble import assemble

        assert isinstance(target, BareTarget)
        return assemble(planned, objects, target)

    @property
    def library_kind(self) -> str:
        return IMAGE

    def library(self, objects: Sequence[bytes], symbols: Sequence[str], target: Target) -> bytes:
        from farrier.llvm import joined_object
        from farrier.targets.bare.image import linked_image

        assert isinstance(target, BareTarget)
        texts = [content.decode() for content in objects]
        content = joined_object(texts, symbols or None, target.llvm)
        return linked_image(target.tune, content, symbols).to_bytes()

    @property
    def packs_on_device(self) -> bool:
        return False

    def floor_ns(self, program: TensorProgram | Function, target: Target, threads: int) -> int:
        return 0  # Instructions are counted, and not cycles.


def _described(name: str, board: Board) -> MachineDescription:
    return MachineDescription(
        arch=CORES[board.core].arch,
        cpu=name,
        features=CORES[board.core].extensions,
        cores=1,
        l1_bytes=_NEAR,
        l2_bytes=_NEAR,
        l3_bytes=0,
        memory_bytes=board.ram.nbytes,
    )


# For an in-order core, LLVM's scheduler would keep more values alive than there are registers, and
# spill. The other flags are as for ARM, since flags are global to a process.
_FLAGS = (
    "-enable-misched=false",
    "-x86-machine-combiner=false",
    "-cgp-max-address-users-to-scan=100",
)

BACKEND = BareBackend()
