"""The microcontroller cores: their names for LLVM and C compilers, and their performance figures.

The figures are estimates for ranking schedules: one instruction per cycle (two on a Cortex-M7),
memory without latency, and a typical clock. They are neither measured nor from a manual.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

MULTIPLIES = "m"
"""The feature that every core has: a multiplication of 32 bits."""
DSP = "dsp"
"""The feature of cores that multiply two pairs of 16 bits at once."""
MVE = "mve"
"""The feature of cores with vectors of 128 bits (Helium), of integers and of f32."""


@dataclasses.dataclass(frozen=True, slots=True)
class Core:
    """A microcontroller core. `arch` is LLVM's architecture name, the first part of the triple.
    `features` are LLVM features in addition to those of `cpu`. `has_floats` is true if the core has
    an f32 unit, `has_dsp` if it multiplies pairs of 16-bit integers, `has_mve` if it has vectors of
    128 bits."""

    arch: str
    cpu: str
    c_target: str  # The C compiler's names of the target and of the core.
    c_cpu: str
    features: tuple[str, ...] = ()
    has_floats: bool = True
    has_dsp: bool = False
    needs_alignment: bool = False  # A load of a word at another address than a multiple of 4 traps.
    has_mve: bool = False
    abi: str = ""
    registers: int = 13
    # The share of a kernel's time that one more instruction of its code must save, for each kernel
    # of the model: flash is scarce, and the kernels of a model share it.
    code_weight: float = 1.7e-6
    figures: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def extensions(self) -> tuple[str, ...]:
        """The `Target.features` of machines with this core, sorted."""
        return (*[DSP] * self.has_dsp, MULTIPLIES, *[MVE] * self.has_mve)

    @property
    def triple(self) -> str:
        # LLVM would read a triple of three parts as having no environment, and use a different
        # calling convention than C compilers.
        return f"{self.arch}-unknown-none-{'elf' if self.arch.startswith('riscv') else 'eabi'}"


def _in_order(hertz: float, issue: float, latency: float, fused: bool = True) -> Mapping[str, Any]:
    """Return the performance figures of an in-order core without caches. A load from memory takes
    one or two cycles."""
    return {
        "fma_ports": 1.0,
        "load_ports": 1.0,
        "issue": issue,
        "fma_latency": latency,
        "overlap": 0.0,
        "hertz": hertz,
        "l2_bandwidth": 4.0,
        "l3_bandwidth": 4.0,
        "shared_bandwidth": 4.0,
        "remote_bandwidth": 4.0,
        "memory_bandwidth": 4.0 * hertz,
        "core_bandwidth": 4.0 * hertz,
        "miss": 1.0,
        "memory_latency": 2.0 / hertz,
        "unroll": 4,
        "exposed": 1.0,
        "fused": fused,
        "folds_loads": False,
        "by_lane": True,
    }


# The code of a tile is long on RISC-V, where bytes are unpacked and multiplied one by one, and its
# many registers allow large tiles, which save little time.
_LONG_TILES = 1.7e-4
_THUMB = "thumb-freestanding-eabi"
_RISCV32 = "riscv32-freestanding-none"
CORES: Mapping[str, Core] = {
    "cortex-m0plus": Core(
        "thumbv6m",
        "cortex-m0plus",
        _THUMB,
        "cortex_m0plus",
        has_floats=False,
        needs_alignment=True,
        registers=7,
        figures=_in_order(133e6, 1.0, 2.0),
    ),
    "cortex-m3": Core(
        "thumbv7m",
        "cortex-m3",
        _THUMB,
        "cortex_m3",
        has_floats=False,
        figures=_in_order(72e6, 1.0, 2.0),
    ),
    "cortex-m4": Core(
        "thumbv7em",
        "cortex-m4",
        _THUMB,
        "cortex_m4",
        has_dsp=True,
        figures=_in_order(100e6, 1.0, 3.0),
    ),
    "cortex-m7": Core(
        "thumbv7em",
        "cortex-m7",
        _THUMB,
        "cortex_m7",
        has_dsp=True,
        figures=_in_order(216e6, 2.0, 3.0),
    ),
    "cortex-m33": Core(
        "thumbv8m.main",
        "cortex-m33",
        _THUMB,
        "cortex_m33",
        has_dsp=True,
        figures=_in_order(128e6, 1.0, 3.0),
    ),
    "cortex-m55": Core(
        "thumbv8.1m.main",
        "cortex-m55",
        _THUMB,
        "cortex_m55",
        has_dsp=True,
        has_mve=True,
        # Bytes are widened as they are loaded, so a load each time is as good as a register. The
        # factor for all lanes is in a core register.
        figures={**_in_order(160e6, 1.0, 4.0), "folds_loads": True, "by_lane": False},
    ),
    "rv32imac": Core(
        "riscv32",
        "generic-rv32",
        _RISCV32,
        "generic_rv32+m+a+c",
        ("+m", "+a", "+c"),
        has_floats=False,
        abi="ilp32",
        registers=27,
        code_weight=_LONG_TILES,
        figures=_in_order(160e6, 1.0, 2.0),
    ),
    "rv32imafc": Core(
        "riscv32",
        "generic-rv32",
        _RISCV32,
        "generic_rv32+m+a+f+c",
        ("+m", "+a", "+f", "+c"),
        abi="ilp32f",
        registers=27,
        code_weight=_LONG_TILES,
        figures=_in_order(160e6, 1.0, 4.0),
    ),
}
