"""Run loop passes on a kernel.

A model has hundreds of kernels, and a search lowers thousands of candidates. So passes are timed,
shown or verified only if the environment (`progress.debug`) or a listener requests it; if a pass
fails, a reproducer is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from farrier.errors import CompilerError, UsageError
from farrier.ir.dim import Undecided
from farrier.ir.loop import Function
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.verify_kernel import verify_function
from farrier.lower.passes import PASSES
from farrier.progress import debug
from farrier.progress.pass_run import PassRun, cause_of

LoopPassRun: TypeAlias = PassRun[Function]
Listener: TypeAlias = Callable[[LoopPassRun], None]


def run_loop_passes(
    function: Function, names: Sequence[str], listener: Listener | None = None
) -> Function:
    """Return a kernel after the named passes. Raises UsageError for an unknown name, and
    CompilerError, which names the pass and the reproducer, if a pass fails or its result is not
    valid IR."""
    unknown = [name for name in names if name not in PASSES]
    if unknown:
        raise UsageError(
            f"there is no loop pass {', '.join(unknown)}",
            hint=f"loop passes: {', '.join(sorted(PASSES))}",
        )
    is_shown = debug.debug_level() >= debug.LOOPS
    is_checked = debug.check_level() >= debug.READ_BACK
    for name in names:
        start = time.perf_counter()
        try:
            after = PASSES[name](function)
        except (CompilerError, Undecided):
            raise  # The kernel cannot be lowered, for the reason in the error.
        except Exception as error:
            raise _failure(name, function, error) from error
        if is_checked and after is not function:
            _check(name, function, after)
        if is_shown or listener is not None:
            run = PassRun(name, time.perf_counter() - start, function, after)
            if is_shown:
                _show(run)
            if listener is not None:
                listener(run)
        function = after
    return function


def _check(name: str, before: Function, after: Function) -> None:
    """Verify the result of the pass `name`, and check that the parser reads its text back. Raises
    CompilerError."""
    try:
        verify_function(after)
        if parse_ir(print_ir(after)) != after:
            raise CompilerError("the printed IR does not read back as the same function")
    except CompilerError as error:
        raise _failure(name, before, error) from error


def _show(run: LoopPassRun) -> None:
    what = f"{run.name} of {run.before.name}: {run.seconds * 1e3:.1f} ms"
    if run.changed:
        debug.show(debug.LOOPS, what, lambda: print_ir(run.after))
    else:
        debug.show(debug.LOOPS, f"{what} (unchanged)")


def _failure(name: str, function: Function, error: Exception) -> CompilerError:
    path = debug.leave_reproducer(name, print_ir(function))
    return CompilerError(
        f"the pass {name} failed on kernel {function.name}: {cause_of(error)}",
        hint=f"farrier opt {path} -p {name}",
    )
