"""The backend and the target class of riscv64 machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farrier.errors import UsageError
from farrier.targets.cpu.backend import CpuBackend
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.riscv.cores import BASE, CORES, EXTENSIONS, OTHER, VECTORS, WIDTHS
from farrier.targets.riscv.machines import MACHINES

if TYPE_CHECKING:
    from farrier.llvm import LLVMMachine
    from farrier.targets.describing import KnownMachine
    from farrier.targets.llvm.builder import Instructions
    from farrier_device.describe import MachineDescription


@dataclasses.dataclass(frozen=True, slots=True)
class RiscvTarget(CpuTarget):
    """A riscv64 CPU as a target."""

    @property
    def backend(self) -> RiscvBackend:
        return BACKEND

    @property
    def figures(self) -> Mapping[str, Any]:
        return CORES.get(self.tune, CORES[OTHER])

    @property
    def llvm(self) -> LLVMMachine:
        from farrier.llvm import LLVMMachine

        features = [f"+{name}" for name in (*sorted(BASE - {"i"}), *self.features)]
        return LLVMMachine(self.triple, self.cpu, tuple(features), _FLAGS)

    @property
    def instructions(self) -> Instructions:
        from farrier.targets.llvm.builder import Instructions

        return Instructions(counts_loops=True, attributes=(f'"tune-cpu"="{self.tune}"',))

    @property
    def support(self) -> str:
        from farrier.targets.cpu.codegen.support import NOTHING_TO_ASK

        text = (Path(__file__).parent / "support.ll").read_text()
        # Twice the size replaces every line, whichever line a cache replaces first.
        nbytes = 2 * max(self.l2_bytes, self.l3_bytes)
        size = f"@evicting_bytes = internal constant i64 {nbytes}\n"
        memory = f"@evicting = internal global [{nbytes} x i8] zeroinitializer, align 64\n"
        return text + size + memory + NOTHING_TO_ASK


class RiscvBackend(CpuBackend):
    """The backend for riscv64 Linux. Vectors have the width that a machine promises. Without vector
    instructions they have a single f32 lane: a loop that other CPUs vectorize runs element by
    element."""

    target_type = RiscvTarget
    name = "riscv"
    archs = frozenset({"riscv64"})

    @property
    def machines(self) -> Mapping[str, KnownMachine]:
        return MACHINES

    def target(self, machine: MachineDescription) -> RiscvTarget:
        flags = set(machine.features)
        if lacks := sorted(BASE - flags):
            raise UsageError(
                f"the machine {machine.cpu or machine.arch} lacks {', '.join(lacks)}, which all "
                "code for riscv64 uses",
                hint="a description lists extensions under features, single letters one by one",
            )
        l1, l2, l3 = machine.l1_bytes or 32 << 10, machine.l2_bytes, machine.l3_bytes
        if l2 and not l3:  # Then the second level is the last one, and the cores share it.
            l2, l3 = max(l2 // machine.cores, l1), l2
        bits, used = 32, flags & EXTENSIONS
        if VECTORS in flags:
            width = max(flags & WIDTHS.keys(), key=WIDTHS.__getitem__, default=next(iter(WIDTHS)))
            bits, used = WIDTHS[width], used | {VECTORS, width}
        return RiscvTarget(
            triple="riscv64-unknown-linux-gnu",
            cpu=_CPU,
            features=tuple(sorted(used)),
            vector_bits=bits,
            registers=32,
            cores=machine.cores,
            l1_bytes=l1,
            l2_bytes=l2 or 256 << 10,
            l3_bytes=l3 or _LAST_LEVEL,
            tune=machine.cpu if machine.cpu in CORES else OTHER,
            core=machine.cpu,
        )

    def implied(self, cpu: str) -> frozenset[str]:
        return BASE


# This is LLVM's name of a core with the integer base alone; `llvm` adds the extensions.
_CPU = "generic-rv64"
# The bytes of a last level that the kernel does not describe.
_LAST_LEVEL = 1 << 20
# Cores in order need loads ahead of their use, which LLVM's scheduler sees to. The other flags are
# as for ARM, as flags are a process's.
_FLAGS = (
    "-enable-misched=true",
    "-x86-machine-combiner=false",
    "-cgp-max-address-users-to-scan=100",
)

BACKEND = RiscvBackend()
