"""The reader of a user's kernel: a Python file with the kernel's IR text and a function that
schedules it."""

from __future__ import annotations

import runpy
from pathlib import Path

from farrier.errors import CompilerError, FarrierError, UsageError
from farrier.ir.loop import Function
from farrier.ir.parser import parse_ir
from farrier.ir.tensor import TensorProgram
from farrier.ir.verify_kernel import verify_function
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule

_HINT = (
    "it has KERNEL, the text of a @program or a @function, and schedule(schedule), which applies "
    "primitives; docs/accelerators.md shows one"
)


def read_kernel(path: Path) -> Function:
    """Execute a user's Python file, and return the kernel that it defines, scheduled by the file's
    function. Raises UsageError, with the name of the file, if the file fails or does not define a
    kernel."""
    try:
        names = runpy.run_path(str(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except Exception as error:
        raise UsageError(f"{path} failed: {type(error).__name__}: {error}", hint=_HINT) from error
    text, steps = names.get("KERNEL"), names.get("schedule")
    if not isinstance(text, str) or not callable(steps):
        raise UsageError(f"{path} is not a kernel", hint=_HINT)
    try:
        kernel = parse_ir(text)
        if isinstance(kernel, TensorProgram):
            kernel = to_loops(kernel)
        if not isinstance(kernel, Function):
            raise UsageError("KERNEL is a graph, and not a @program or a @function")
        verify_function(kernel)
        schedule = Schedule(kernel)
        steps(schedule)
    except (CompilerError, UsageError) as error:
        raise UsageError(f"{path}: {error}", hint=error.hint) from None
    except FarrierError:
        raise
    except Exception as error:
        raise UsageError(f"{path} failed: {type(error).__name__}: {error}", hint=_HINT) from error
    return schedule.function
