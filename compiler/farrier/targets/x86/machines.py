"""The named x86-64 machines, and the performance figures of their cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farrier.targets.describing import KnownMachine
from farrier_device.describe import MachineDescription

# The kernel's names of the extensions in a level of the psABI that code uses.
V2 = frozenset({"sse4_1", "sse4_2", "ssse3", "popcnt", "cx16"})
V3 = V2 | {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
LEVELS = {"x86-64-v2": V2, "x86-64-v3": V3, "x86-64-v4": V4}

EXTENSIONS = frozenset(
    {
        "avx512_bf16",
        "avx512_vnni",
        "avx512vbmi",
        "avx_vnni",
        "avx512_fp16",
        "amx_tile",
        "amx_bf16",
        "amx_int8",
    }
)


def _level(name: str, l2_bytes: int, l3_bytes: int, source: str) -> KnownMachine:
    features = tuple(sorted(LEVELS[name]))
    machine = MachineDescription(
        arch="x86_64",
        cpu=name,
        features=features,
        cores=4,
        l1_bytes=32 << 10,
        l2_bytes=l2_bytes,
        l3_bytes=l3_bytes,
        memory_bytes=8 << 30,
    )
    return KnownMachine(machine, source, generic=True)


MACHINES = {
    "i7-12700": KnownMachine(
        MachineDescription(
            arch="x86_64",
            cpu="12th Gen Intel(R) Core(TM) i7-12700",
            features=tuple(sorted(V3 | {"avx_vnni"})),
            cores=8,
            l1_bytes=48 << 10,
            l2_bytes=1280 << 10,
            l3_bytes=25 << 20,
            memory_bytes=0,
        ),
        "Intel Core i7-12700 (Alder Lake), its performance cores",
    ),
    "x86-64-v2": _level("x86-64-v2", 256 << 10, 8 << 20, "psABI level; caches of Intel Nehalem"),
    "x86-64-v3": _level("x86-64-v3", 512 << 10, 16 << 20, "psABI level; caches of AMD Zen 2"),
    "x86-64-v4": _level("x86-64-v4", 1 << 20, 32 << 20, "psABI level; caches of AMD Zen 4"),
}

# The figures of an AMD Zen 5 in a virtual machine of two cores, as measured
# (bench/notes/2026-11-27-results.md).
_ZEN5: dict[str, Any] = {
    "hertz": 3.7e9,
    "fma_ports": 2.0,
    "load_ports": 2.0,
    "issue": 8.0,
    "fma_latency": 4.0,
    "overlap": 100.0,
    "window": 448.0,
    "l2_bandwidth": 32.0,
    "l3_bandwidth": 14.0,
    "shared_bandwidth": 14.0,
    "remote_bandwidth": 2.0,
    "miss": 0.0,
    "memory_bandwidth": 33e9,
    "core_bandwidth": 43e9,
    "memory_latency": 0.09e-6,
    "unroll": 4,
    "exposed": 0.35,
    "folds_loads": True,
    "by_lane": False,
}
# Figures that differ from Zen 5's, by LLVM's name of the microarchitecture ("" for any other), of a
# machine of two cores.
_FIGURES: dict[str, dict[str, Any]] = {
    "": {
        "l3_bandwidth": 20.0,
        "memory_bandwidth": 33e9,
    },
    # A core of a virtual machine is a hyperthread here. The other hyperthread of the core, another
    # tenant's, leaves between 2.4 and 6 of 6 instructions a cycle, so tiles with few loads win; it
    # does not affect multiply-adds in registers.
    "sapphirerapids": {
        "hertz": 2.2e9,
        "issue": 3.0,
        "l2_bandwidth": 26.0,
        "l3_bandwidth": 9.0,
        "shared_bandwidth": 30.0,
        "remote_bandwidth": 3.0,
        "miss": 3.0,
        "memory_bandwidth": 20e9,
        "core_bandwidth": 15e9,
        "exposed": 0.7,
        "unroll": 8,
    },
    # The other hyperthread, another tenant's, leaves between 3.5 and 6 of 6 instructions a cycle,
    # and between 1.6 and 2 of 2 loads of a vector.
    "znver3": {
        "hertz": 3.2e9,
        "issue": 4.0,
        "load_ports": 1.75,
        "window": 256.0,
        "l2_bandwidth": 30.0,
        "l3_bandwidth": 18.0,
        "shared_bandwidth": 18.0,
        "remote_bandwidth": 4.4,
        "miss": 3.0,
        "memory_bandwidth": 36e9,
        "core_bandwidth": 19e9,
        "exposed": 0.7,
        "unroll": 8,
    },
}

# The share of a server's memory bandwidth that a virtual machine has grows with its cores: 20 GB/s
# of Emerald Rapids for two, 120 for 16. Other processors may be desktops with two channels.
_GROWTH = 0.85
_MOST_BANDWIDTH = {"sapphirerapids": 250e9}
_TWO_CHANNELS = 64e9


def figures(tune: str, cores: int) -> Mapping[str, Any]:
    """Return the performance figures of the microarchitecture `tune` (LLVM's name) with `cores`
    cores, as fields of `space.machine.Machine`."""
    differing = _FIGURES.get(tune, _FIGURES[""])
    grown = differing["memory_bandwidth"] * (max(cores, 2) / 2) ** _GROWTH
    return {
        **_ZEN5,
        **differing,
        "memory_bandwidth": min(grown, _MOST_BANDWIDTH.get(tune, _TWO_CHANNELS)),
    }
