"""The backend and the target class of aarch64 machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farrier.errors import UsageError
from farrier.targets.arm.cores import CORES, GENERIC, OTHER_NEW, OTHER_OLD, V8_0
from farrier.targets.arm.machines import MACHINES
from farrier.targets.cpu.backend import CpuBackend
from farrier.targets.cpu.target import CpuTarget

if TYPE_CHECKING:
    from farrier.intrinsics import Dot, TensorIntrinsic
    from farrier.llvm import LLVMMachine
    from farrier.targets.cpu.units.tile_unit import TileUnit
    from farrier.targets.describing import KnownMachine
    from farrier.targets.llvm.builder import Instructions
    from farrier_device.describe import MachineDescription


@dataclasses.dataclass(frozen=True, slots=True)
class ArmTarget(CpuTarget):
    """An aarch64 CPU as a target."""

    @property
    def backend(self) -> ArmBackend:
        return BACKEND

    @property
    def figures(self) -> Mapping[str, Any]:
        return CORES.get(self.tune, CORES[OTHER_OLD]).figures

    @property
    def llvm(self) -> LLVMMachine:
        from farrier.llvm import LLVMMachine

        core = CORES.get(self.tune)
        in_order = core is not None and core.in_order
        # Code uses 128 bits at a time, whatever width of SVE a core has; and a vendor may omit a
        # core's cryptographic extensions.
        features = ("-sve", "-sve2", "-sha3") if self.cpu in _WITH_SVE else ()
        # An in-order core needs its loads ahead of their use; an out-of-order one reorders them
        # itself, and the scheduler would only spill.
        scheduler = f"-enable-misched={str(in_order).lower()}"
        return LLVMMachine(self.triple, self.cpu, features, (scheduler, *_FLAGS))

    @property
    def instructions(self) -> Instructions:
        from farrier.targets.llvm.builder import Instructions

        return Instructions(
            rounds_bf16="bf16" in self.required_features,
            converts_f16=True,
            keeps_nan=True,
            counts_loops=True,
            takes_lanes=True,
            pair_reach=63 * 16,  # LDP and STP of 128 bits
        )

    @property
    def support(self) -> str:
        from farrier.targets.cpu.codegen.support import NOTHING_TO_ASK

        return (Path(__file__).parent / "support.ll").read_text() + NOTHING_TO_ASK

    @property
    def dots(self) -> Sequence[Dot]:
        from farrier.targets.arm.intrinsics import DOTS

        return DOTS

    @property
    def tile_units(self) -> Sequence[TileUnit]:
        from farrier.targets.arm.tile_unit import tile_units

        return tile_units(self)

    @property
    def page_bytes(self) -> int:
        return 65536


class ArmBackend(CpuBackend):
    """The backend for aarch64 Linux with 128-bit vectors (NEON)."""

    target_type = ArmTarget
    name = "arm"
    archs = frozenset({"aarch64"})

    @property
    def machines(self) -> Mapping[str, KnownMachine]:
        return MACHINES

    def target(self, machine: MachineDescription) -> ArmTarget:
        flags = set(machine.features)
        if lacks := sorted(V8_0 - flags):
            raise UsageError(
                f"the machine {machine.cpu or machine.arch} lacks {', '.join(lacks)}, which all "
                "code for aarch64 uses",
                hint="a description lists the kernel's names of extensions under features",
            )
        core = CORES.get(machine.cpu)
        is_known = core is not None and core.features <= flags
        nearest = OTHER_NEW if "asimddp" in flags else OTHER_OLD
        l1, l2, l3 = machine.l1_bytes or 32 << 10, machine.l2_bytes, machine.l3_bytes
        # Without a third level, the second level is the last and all cores share it.
        if l2 and not l3:
            l2, l3 = max(l2 // machine.cores, l1), l2
        l2 = l2 or 256 << 10
        return ArmTarget(
            triple="aarch64-unknown-linux-gnu",
            cpu=machine.cpu if is_known else GENERIC,
            features=(),
            vector_bits=128,
            registers=32,
            cores=machine.cores,
            l1_bytes=l1,
            l2_bytes=l2,
            l3_bytes=l3 or _LAST_LEVEL,
            tune=machine.cpu if machine.cpu in CORES else nearest,
            core=machine.cpu,
        )

    def implied(self, cpu: str) -> frozenset[str]:
        return CORES[cpu].features if cpu in CORES else V8_0

    @property
    def precisions(self) -> Mapping[str, frozenset[str]]:
        return {
            "f32": frozenset(),
            "bf16": frozenset({"bf16"}),
            "f16": frozenset({"asimdhp"}),
        }

    @property
    def intrinsics(self) -> Sequence[TensorIntrinsic]:
        from farrier.targets.arm.intrinsics import INTRINSICS

        return INTRINSICS


_LAST_LEVEL = 1 << 20  # In bytes, if the kernel does not report it.
_WITH_SVE = frozenset({"neoverse-n2", "neoverse-v1", "neoverse-v2"})
# The flags are the same as for x86, since flags are global to a process. Only the limit for
# addresses is LLVM's own default.
_FLAGS = ("-x86-machine-combiner=false", "-cgp-max-address-users-to-scan=100")

BACKEND = ArmBackend()
