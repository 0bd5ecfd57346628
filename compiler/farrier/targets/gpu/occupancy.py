"""The blocks of a launch that a unit of a GPU runs at the same time."""

from __future__ import annotations

import numpy as np

from farrier.space.space import Floats
from farrier.targets.gpu.device import Device


def occupancy(
    device: Device,
    blocks: Floats,
    threads: Floats,
    registers: Floats | float = 0.0,
    workgroup_bytes: Floats | float = 0.0,
) -> tuple[Floats, Floats]:
    """Return, for each candidate, the number of blocks of the busiest unit, and how many of these
    run at once. A launch has `blocks` blocks of `threads` threads, which share `workgroup_bytes`
    bytes; each thread has `registers` registers. All are float [candidates]."""
    resident = device.threads / threads
    of_registers = device.registers / (np.maximum(registers, 1.0) * threads)
    resident = np.minimum(resident, of_registers)
    resident = np.minimum(resident, device.workgroup_bytes / np.maximum(workgroup_bytes, 1.0))
    rounds = np.ceil(blocks / device.units)
    return rounds, np.minimum(np.maximum(1.0, np.floor(resident)), rounds)
