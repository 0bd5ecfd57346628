"""The backend and the target class of x86-64 machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farrier.errors import UsageError
from farrier.targets.cpu.backend import CpuBackend
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.x86.machines import EXTENSIONS, LEVELS, MACHINES, V2, V3, V4, figures

if TYPE_CHECKING:
    from farrier.intrinsics import Dot, TableLookup, TensorIntrinsic
    from farrier.llvm import LLVMMachine
    from farrier.targets.cpu.units.tile_unit import TileUnit
    from farrier.targets.describing import KnownMachine
    from farrier.targets.llvm.builder import Instructions
    from farrier_device.describe import MachineDescription

# The scheduler before register allocation hoists broadcasts until they spill; the shortening of
# chains of integer additions keeps more values than there are registers. LLVM would check for all
# users of an address whether they can fold its sum, which takes an eighth of its time; code is as
# fast if it checks one.
_FLAGS = (
    "-enable-misched=false",
    "-x86-machine-combiner=false",
    "-cgp-max-address-users-to-scan=1",
)

# LLVM's names of the ISA extensions whose names differ from the kernel's.
_LLVM_NAMES = {
    "avx512_bf16": "avx512bf16",
    "avx512_vnni": "avx512vnni",
    "avx512_fp16": "avx512fp16",
    "avx_vnni": "avxvnni",
    "amx_tile": "amx-tile",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
}

_BF16 = "avx512_bf16"
_BITS = {"x86-64-v2": 128, "x86-64-v3": 256, "x86-64-v4": 512}
_REGISTERS = {"x86-64-v2": 16, "x86-64-v3": 16, "x86-64-v4": 32}


@dataclasses.dataclass(frozen=True, slots=True)
class X86Target(CpuTarget):
    """An x86-64 CPU as a target: a microarchitecture level of the psABI, and further extensions."""

    @property
    def backend(self) -> X86Backend:
        return BACKEND

    @property
    def figures(self) -> Mapping[str, Any]:
        parameters = figures(self.tune, self.cores)
        return {**parameters, "fused": "fma" in self.required_features}

    @property
    def llvm(self) -> LLVMMachine:
        from farrier.llvm import LLVMMachine

        features = [f"+{_LLVM_NAMES.get(name, name)}" for name in self.features]
        if self.vector_bits == 512:
            features.append("-prefer-256-bit")
        return LLVMMachine(self.triple, self.cpu, tuple(features), _FLAGS)

    @property
    def instructions(self) -> Instructions:
        from farrier.targets.llvm.builder import Instructions
        from farrier.targets.x86.intrinsics import scale

        is_wide = self.vector_bits == 512  # Narrower vectors of that instruction set are rare.
        return Instructions(
            scale=scale if is_wide else None,
            scale_bits=512 if is_wide else 0,
            rounds_bf16=_BF16 in self.features,
            converts_f16="f16c" in self.required_features,
            fuses="fma" in self.required_features,
            # Without it LLVM splits vectors of 512 bits on a machine that prefers those of 256.
            attributes=(f'"min-legal-vector-width"="{self.vector_bits}"',),
        )

    @property
    def support(self) -> str:
        from farrier.targets.cpu.codegen.support import NOTHING_TO_ASK

        folder = Path(__file__).parent
        has_tiles = "amx_tile" in self.features
        asks = (folder / "support_amx.ll").read_text() if has_tiles else NOTHING_TO_ASK
        return (folder / "support.ll").read_text() + asks

    @property
    def dots(self) -> Sequence[Dot]:
        from farrier.targets.x86.intrinsics import DOTS

        return DOTS

    @property
    def table_lookups(self) -> Sequence[TableLookup]:
        from farrier.targets.x86.intrinsics import TABLE_LOOKUPS

        return TABLE_LOOKUPS

    @property
    def tile_units(self) -> Sequence[TileUnit]:
        from farrier.targets.x86.tile_unit import UNITS

        return UNITS


class X86Backend(CpuBackend):
    """The backend for x86-64 Linux, at the highest psABI level that a machine supports."""

    target_type = X86Target
    name = "x86"
    archs = frozenset({"x86_64"})

    @property
    def machines(self) -> Mapping[str, KnownMachine]:
        return MACHINES

    def target(self, machine: MachineDescription) -> X86Target:
        flags = set(machine.features)
        if lacks := sorted(V2 - flags):
            raise UsageError(
                f"the machine {machine.cpu or machine.arch} lacks {', '.join(lacks)}, which all "
                "code for x86-64 uses",
                hint="any processor since 2009 (x86-64-v2) has them",
            )
        level = "x86-64-v4" if flags >= V4 else "x86-64-v3" if flags >= V3 else "x86-64-v2"
        return X86Target(
            triple="x86_64-unknown-linux-gnu",
            cpu=level,
            features=tuple(sorted(flags & EXTENSIONS)),
            vector_bits=_BITS[level],
            registers=_REGISTERS[level],
            cores=machine.cores,
            l1_bytes=machine.l1_bytes or 32 << 10,
            l2_bytes=machine.l2_bytes or 512 << 10,
            l3_bytes=machine.l3_bytes or 8 << 20,
            tune=_microarchitecture(machine),
            core=machine.cpu,
        )

    def implied(self, cpu: str) -> frozenset[str]:
        return LEVELS.get(cpu, frozenset())

    @property
    def precisions(self) -> Mapping[str, frozenset[str]]:
        return {"f32": frozenset(), "bf16": frozenset({_BF16})}

    @property
    def intrinsics(self) -> Sequence[TensorIntrinsic]:
        from farrier.targets.x86.intrinsics import INTRINSICS

        return INTRINSICS


def _microarchitecture(machine: MachineDescription) -> str:
    """Return LLVM's name of the microarchitecture whose performance figures are used for a machine;
    "" if there are none for it. A virtual machine may hide the processor model, so the choice
    depends on the vendor and the ISA extensions."""
    flags = set(machine.features)
    if "Intel" in machine.cpu and "avx512f" in flags:
        return "sapphirerapids"
    if "AMD" in machine.cpu and flags >= V3 and "avx512f" not in flags:
        return "znver3"
    return ""


BACKEND = X86Backend()
