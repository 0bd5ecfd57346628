"""The named accelerators. The figures of one are from a publication; Farrier defines the others."""

from __future__ import annotations

from farrier.targets.dae.description import (
    ARCH,
    Accelerator,
    Fields,
    Matrix,
    Memory,
    Port,
    Queues,
    Vector,
    to_features,
)
from farrier.targets.describing import KnownMachine
from farrier_device.describe import MachineDescription

_K = 1 << 10

# VTA's default configuration (apache/tvm-vta, config/vta_config.json): LOG_BATCH 0, LOG_BLOCK 4,
# LOG_INP_BUFF_SIZE 15, LOG_WGT_BUFF_SIZE 18, LOG_ACC_BUFF_SIZE 17, and the 64-bit port of its
# board at 100 MHz. The instructions are Farrier's own: they need no memory of micro-operations.
VTA = Accelerator(
    name="vta",
    matrix=Matrix(batch=1, inner=16, outer=16),
    memory=Memory(input=32 * _K, weight=256 * _K, sum=128 * _K),
    port=Port(bytes=8, latency=64),
    vector=Vector(lanes=16),
    fields=Fields(index=11, count=11),
    mhz=100,
)
# Its latencies have a register behind each memory and each stage of the units, and its command
# queues lie in distributed RAM. nextpnr reports 36 MHz for it on an ECP5-85.
SMALL = Accelerator(
    name="small",
    matrix=Matrix(batch=1, inner=8, outer=8, latency=7),
    memory=Memory(input=16 * _K, weight=32 * _K, sum=32 * _K),
    port=Port(bytes=4, latency=32),
    vector=Vector(lanes=1, latency=10),
    fields=Fields(index=11, count=11),
    queues=Queues(commands=32),
    mhz=35,
)
# Four times the products per cycle of VTA, and twice its port.
WIDE = Accelerator(
    name="wide",
    matrix=Matrix(batch=1, inner=32, outer=32),
    memory=Memory(input=64 * _K, weight=512 * _K, sum=256 * _K),
    port=Port(bytes=16, latency=64),
    vector=Vector(lanes=32),
    fields=Fields(index=11, count=11),
    mhz=200,
)


def described(accelerator: Accelerator) -> MachineDescription:
    """Return the machine description of an accelerator, in which its figures are the features."""
    memory = accelerator.memory
    return MachineDescription(
        arch=ARCH,
        cpu=accelerator.name,
        features=to_features(accelerator),
        cores=1,
        l1_bytes=memory.input,
        l2_bytes=memory.input + memory.weight + memory.sum,
        l3_bytes=0,
        memory_bytes=1 << 30,
    )


MACHINES = {
    "dae:vta": KnownMachine(
        described(VTA), "apache/tvm-vta, vta_config.json: its sizes, not its instructions"
    ),
    "dae:small": KnownMachine(described(SMALL), "Farrier: 8 × 8 products, for an ECP5"),
    "dae:wide": KnownMachine(described(WIDE), "Farrier: 32 × 32 products, twice VTA's port"),
}
