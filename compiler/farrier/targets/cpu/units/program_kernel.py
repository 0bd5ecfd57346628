"""The base class of the kernels of rules that schedule a tensor program."""

from __future__ import annotations

import functools

from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops


class ProgramKernel:
    """A kernel with a tensor program that has been prepared for its rule."""

    program: TensorProgram

    @functools.cached_property
    def function(self) -> Function:
        """The unscheduled loops of the program."""
        return to_loops(self.program)
