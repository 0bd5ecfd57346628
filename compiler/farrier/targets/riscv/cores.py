"""The performance figures of RISC-V cores, by LLVM's name of each core.

Ports, issue width and latencies are from LLVM's scheduling models (`RISCVSchedSiFive7.td`,
`RISCVSchedSpacemitX60.td`). Bandwidths are estimates from the width of the data paths and the kind
of memory on the boards with that core. None of the figures is measured by Farrier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The kernel's names of the extensions that all code uses: `g` and compressed instructions.
BASE = frozenset("imafdc")
# Extensions that code uses where a machine has them: shifted additions, minima of integers and
# counts of bits, and single bits. LLVM's names of them are the kernel's.
EXTENSIONS = frozenset({"zba", "zbb", "zbs"})
VECTORS = "v"
# The least width of a vector register in bits, by the extension that states it. All cores with
# `VECTORS` have the first. Registers that are wider than the last are used in part.
WIDTHS = {f"zvl{bits}b": bits for bits in (128, 256, 512)}

# Two instructions a cycle in order, of which one may be a load and one may be of floats.
_IN_ORDER: Mapping[str, Any] = {
    "fma_ports": 1.0,
    "load_ports": 1.0,
    "issue": 2.0,
    "fma_latency": 5.0,
    "overlap": 0.0,
    "window": 10_000.0,  # Prefetchers bring in time what lies in line in memory.
    "l2_bandwidth": 8.0,
    "l3_bandwidth": 4.0,
    "shared_bandwidth": 4.0,
    "remote_bandwidth": 1.0,
    "miss": 20.0,
    "memory_latency": 0.15e-6,
    "unroll": 8,
    "exposed": 1.0,
    "fused": True,
    "folds_loads": False,
    "by_lane": False,
}
CORES: Mapping[str, Mapping[str, Any]] = {
    "sifive-u74": {
        **_IN_ORDER,
        "hertz": 1.5e9,
        "memory_bandwidth": 2.5e9,
        "core_bandwidth": 1.5e9,
    },
    "spacemit-x60": {
        **_IN_ORDER,
        "hertz": 1.6e9,
        "memory_bandwidth": 7e9,
        "core_bandwidth": 3e9,
    },
}
# Any other core costs as this one, which most boards had before 2024.
OTHER = "sifive-u74"
