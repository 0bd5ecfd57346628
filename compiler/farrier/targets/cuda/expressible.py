"""The decision whether the CUDA renderer supports a kernel. The host runs all other kernels."""

from __future__ import annotations

from collections.abc import Callable

from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.ir.threads import SUBGROUP_SIZE
from farrier.targets.cuda.kernel_text import render
from farrier.targets.gpu.device import Limits
from farrier.targets.gpu.inexpressible import InexpressibleError

# A kernel has at most 4096 bytes of parameters, which are pointers of 8 bytes; two of them are the
# sizes and the scratch memory.
LIMITS = Limits(threads=256, workgroup_bytes=48 << 10, buffers=510, lanes=SUBGROUP_SIZE)


def why_not(
    program: TensorProgram | Function, lowered: Callable[[], Function], architecture: str
) -> str:
    """Return the reason why a kernel cannot be rendered for CUDA, as a clause; "" if it can.
    `lowered` returns the kernel's loops as lowered with the default schedule."""
    try:
        render(lowered(), architecture)
    except InexpressibleError as error:
        return error.reason
    return ""
