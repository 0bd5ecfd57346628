"""The check that WebGPU kernels can address their arrays."""

from __future__ import annotations

from collections.abc import Mapping

from farrier.errors import CompilerError
from farrier.partition.program import DriverProgram
from farrier.targets.interface import Interface
from farrier_device.webgpu_library import GPU, MOST_BYTES


def check_sizes(program: DriverProgram, kernels: Mapping[str, Interface]) -> None:
    """Raise CompilerError for an array that is too large for a WebGPU kernel to address
    completely."""
    for call in program.calls:
        if kernels[call.task].space != GPU:
            continue
        for value in (*call.inputs, *call.outputs):
            nbytes = value.type.nbytes
            if isinstance(nbytes, int) and nbytes > MOST_BYTES:
                raise CompilerError(
                    f"{value.name} of node {call.origin!r} has {nbytes >> 20} MiB, and an array of "
                    f"a kernel of WebGPU at most {MOST_BYTES >> 20}",
                    hint="--target host compiles for the processor",
                )
