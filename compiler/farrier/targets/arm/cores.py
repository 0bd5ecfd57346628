"""The performance figures of Arm cores, by LLVM's name of each core.

Throughputs and latencies are from Arm's software optimization guide for the core, except where
LLVM's scheduling model is slower, as for in-order cores. Cache bandwidths are estimates from the
width of the data paths. `overlap`, the number of instructions that a core starts while earlier ones
wait, is an estimate from the size of the reorder buffer. None of the figures is measured by
Farrier.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

# The ISA extensions, under the Linux kernel's names, that LLVM may use in code for a core.
V8_0 = frozenset({"fp", "asimd"})
V8_2 = V8_0 | {"asimddp", "asimdhp", "asimdrdm", "atomics", "crc32", "fphp", "lrcpc"}
V8_4 = V8_2 | {"bf16", "fcma", "flagm", "i8mm", "ilrcpc", "jscvt"}


@dataclasses.dataclass(frozen=True, slots=True)
class Core:
    """An Arm core: the ISA extensions that generated code may always use, and the figures that
    differ from the defaults of `space.machine.Machine`."""

    features: frozenset[str]
    figures: Mapping[str, Any]
    in_order: bool = False


# The figures of all cores: LLVM's or, without one, those measured on an AMD Zen 5.
_ALL: Mapping[str, Any] = {
    "fma_latency": 4.0,
    # Prefetchers are assumed to fetch sequential memory in time.
    "window": 10_000.0,
    "miss": 0.0,
    "remote_bandwidth": 2.0,
    "core_bandwidth": 43e9,
    "memory_latency": 0.09e-6,
    "unroll": 4,
    "fused": True,
    "folds_loads": False,
    "by_lane": True,
}
# One FMLA of 128 bits a cycle, and a load of 128 bits blocks its port for two.
_IN_ORDER = {
    **_ALL,
    "issue": 2.0,
    "fma_ports": 1.0,
    "load_ports": 0.5,
    "fma_latency": 4.0,
    "overlap": 0.0,
    "l2_bandwidth": 8.0,
    "l3_bandwidth": 3.0,
    "shared_bandwidth": 3.0,
    "memory_bandwidth": 2.5e9,
    "miss": 20.0,
    "exposed": 1.0,
}
# In LLVM's model, neoverse-n1 dispatches three operations per cycle, and a load of two vectors
# takes three.
_A76 = {
    **_ALL,
    "unroll": 8,
    "issue": 3.0,
    "overlap": 30.0,
    "fma_ports": 2.0,
    "load_ports": 2.0,
    "l2_bandwidth": 16.0,
    "l3_bandwidth": 8.0,
    "shared_bandwidth": 8.0,
    "exposed": 0.5,
}
_V1 = {
    **_ALL,
    "unroll": 8,
    "issue": 8.0,
    "overlap": 60.0,
    "fma_ports": 4.0,
    "load_ports": 3.0,
    "l2_bandwidth": 32.0,
    "l3_bandwidth": 12.0,
    "shared_bandwidth": 12.0,
    "exposed": 0.4,
}
_A72 = {
    **_ALL,
    "hertz": 1.5e9,
    "issue": 3.0,
    "overlap": 30.0,
    "fma_ports": 1.0,
    "load_ports": 1.0,
    "l2_bandwidth": 12.0,
    "l3_bandwidth": 6.0,
    "shared_bandwidth": 6.0,
    "memory_bandwidth": 4e9,
    "miss": 4.0,
    "exposed": 0.7,
}

CORES = {
    "cortex-a53": Core(V8_0, {**_IN_ORDER, "hertz": 1.4e9}, in_order=True),
    "cortex-a55": Core(V8_2, {**_IN_ORDER, "hertz": 1.8e9}, in_order=True),
    "cortex-a57": Core(V8_0, _A72),
    "cortex-a72": Core(V8_0, _A72),
    "cortex-a73": Core(V8_0, _A72),
    "cortex-a75": Core(V8_2, {**_A76, "hertz": 2.0e9, "memory_bandwidth": 10e9}),
    "cortex-a76": Core(V8_2, {**_A76, "hertz": 2.4e9, "memory_bandwidth": 10e9}),
    "cortex-a76ae": Core(V8_2, {**_A76, "hertz": 2.2e9, "memory_bandwidth": 20e9}),
    "cortex-a77": Core(V8_2, {**_A76, "hertz": 2.6e9, "memory_bandwidth": 15e9}),
    "cortex-a78": Core(V8_2, {**_A76, "hertz": 2.2e9, "memory_bandwidth": 20e9}),
    "cortex-a78ae": Core(V8_2, {**_A76, "hertz": 2.2e9, "memory_bandwidth": 20e9}),
    "neoverse-n1": Core(
        V8_2, {**_A76, "hertz": 2.5e9, "memory_bandwidth": 100e9, "core_bandwidth": 15e9}
    ),
    "neoverse-n2": Core(
        V8_4, {**_A76, "hertz": 2.7e9, "memory_bandwidth": 100e9, "core_bandwidth": 20e9}
    ),
    "neoverse-v1": Core(
        V8_4, {**_V1, "hertz": 2.6e9, "memory_bandwidth": 200e9, "core_bandwidth": 25e9}
    ),
    "neoverse-v2": Core(
        V8_4, {**_V1, "hertz": 2.8e9, "memory_bandwidth": 300e9, "core_bandwidth": 30e9}
    ),
}

# Code for any other core is code for the first version of the architecture, with the costs of one
# of these.
OTHER_NEW, OTHER_OLD = "cortex-a76", "cortex-a72"
GENERIC = "generic"
