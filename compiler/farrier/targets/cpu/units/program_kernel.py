"""A kernel of a rule that schedules a tensor program."""

from __future__ import annotations

import functools

from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops


class ProgramKernel:
    """The base of kernels that have a program, made ready for the rule."""

    program: TensorProgram

    @functools.cached_property
    def function(self) -> Function:
        """The naive loops of the program."""
        return to_loops(self.program)
