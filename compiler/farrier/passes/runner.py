"""Run passes on a graph and on the regions of its control flow.

Each pass is timed, verified and shown on demand; if a pass fails, a reproducer is written.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from farrier.errors import CompilerError, UsageError
from farrier.ir.constants import FOLDER, ConstantFiles
from farrier.ir.control import map_regions
from farrier.ir.graph import Constant, Graph
from farrier.ir.loop import Function
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.tensor import TensorProgram
from farrier.ir.walk import walk
from farrier.lower.runner import LoopPassRun, run_loop_passes
from farrier.ops.verify import verify
from farrier.passes.algorithm import CHOICE, Layer
from farrier.passes.passes import PASSES, Pass
from farrier.passes.settings import Settings
from farrier.progress import debug
from farrier.progress.pass_run import PassRun, cause_of

if TYPE_CHECKING:
    import numpy.typing as npt


GraphPassRun: TypeAlias = PassRun[Graph]
Listener: TypeAlias = Callable[[GraphPassRun], None]


def optimize(graph: Graph, settings: Settings, listener: Listener | None = None) -> Graph:
    """Return the model as kernels: the graph after all passes. Only views and control flow remain
    outside `Fused` nodes."""
    return finish(prepare(graph, settings, listener), settings, listener)


def prepare(graph: Graph, settings: Settings, listener: Listener | None = None) -> Graph:
    """Return the graph after the first part of the backend's passes, up to the choice of
    convolution algorithms. The result does not depend on that choice."""
    return run_passes(graph, _halves(settings)[0], settings, listener)


def finish(graph: Graph, settings: Settings, listener: Listener | None = None) -> Graph:
    """Return the kernels of a prepared graph, with the convolution algorithms that `settings`
    choose."""
    return run_passes(graph, _halves(settings)[1], settings, listener)


def _halves(settings: Settings) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of the backend's passes before the choice of convolution algorithms, and of
    those from that choice on."""
    order = settings.target.backend.passes
    at = order.index(CHOICE) if CHOICE in order else len(order)
    return order[:at], order[at:]


def layers(graph: Graph, settings: Settings) -> Sequence[Layer]:
    """Return, in order, the convolutions of a prepared graph for which an algorithm is chosen."""
    return settings.target.backend.layers(graph, settings)


def run_passes(
    graph: Graph, names: Sequence[str], settings: Settings, listener: Listener | None = None
) -> Graph:
    """Return `graph` after the named passes. Raises UsageError for an unknown name, and
    CompilerError, which names the pass and the reproducer, if a pass fails or its result is not
    valid IR."""
    passes = {**PASSES, **settings.target.backend.own_passes}
    unknown = [name for name in names if name not in passes]
    if unknown:
        raise UsageError(
            f"there is no pass {', '.join(unknown)}", hint=f"passes: {', '.join(sorted(passes))}"
        )
    for name in names:
        start = time.perf_counter()
        try:
            after = _everywhere(passes[name], graph, settings)
            seconds = time.perf_counter() - start
            if after is not graph:
                _check(after, graph)
        except Exception as error:
            raise _failure(name, graph, settings, error) from error
        run = PassRun(name, seconds, graph, after)
        _show(run)
        if listener is not None:
            listener(run)
        graph = after
    return graph


def _everywhere(function: Pass, graph: Graph, settings: Settings) -> Graph:
    """Return the graph after running the pass `function` on it and on each region of its control
    flow."""
    return map_regions(
        function(graph, settings), lambda region: _everywhere(function, region, settings)
    )


def _check(graph: Graph, before: Graph) -> None:
    """Verify the result of a pass that ran on the graph `before`. Raises CompilerError."""
    level = debug.check_level()
    if level >= 1:
        verify(graph, before if level < 2 else None)
    if level >= 2 and parse_ir(print_ir(graph), arrays_of(graph)) != graph:
        raise CompilerError("the printed IR does not read back as the same graph")


def arrays_of(graph: Graph) -> dict[str, npt.NDArray[Any]]:
    """Return the array of every constant, including those in regions, by its sha256, for
    `parse_ir`."""
    return {node.digest: node.data for node in walk(graph) if isinstance(node, Constant)}


def _show(run: GraphPassRun) -> None:
    if debug.debug_level() < debug.TIMES:
        return
    took = f"{run.name}: {run.seconds * 1e3:.1f} ms"
    if not run.changed:
        debug.show(debug.TIMES, f"{took} (unchanged)")
        return
    debug.show(debug.TIMES, f"{took}, {len(run.before.nodes)} → {len(run.after.nodes)} nodes")
    if debug.debug_level() == debug.CHANGES:
        debug.show(debug.CHANGES, f"changes by {run.name}", lambda: _difference(run))
    debug.show(debug.GRAPHS, f"after {run.name}", lambda: print_ir(run.after))


def _difference(run: GraphPassRun) -> str:
    before, after = (print_ir(graph).splitlines(keepends=True) for graph in (run.before, run.after))
    return "".join(difflib.unified_diff(before, after, "before", "after", n=1))


def _failure(name: str, graph: Graph, settings: Settings, error: Exception) -> CompilerError:
    path = write_reproducer(name, graph)
    return CompilerError(
        f"the pass {name} failed on graph {graph.name}: {cause_of(error)}",
        hint=f"farrier opt {path} -p {name} --precision {settings.precision}",
    )


def write_reproducer(name: str, graph: Graph) -> Path:
    """Write `graph` as text, with its large constants next to the file, and return the path of the
    text."""
    written = ConstantFiles(debug.crash_directory() / FOLDER).store(graph)
    return debug.leave_reproducer(name, print_ir(written))


def opt(
    text: str,
    passes: Sequence[str],
    print_after_all: bool = False,
    constants: Mapping[str, npt.NDArray[Any]] | None = None,
    *,
    settings: Settings,
) -> str:
    """Return the output of `farrier opt`: the IR text of a graph or loop function after `passes`,
    or after each of them if `print_after_all`. No pass applies to a tensor program."""
    ir = parse_ir(text, constants)
    verify(ir)
    shown: list[str] = []

    def keep(run: GraphPassRun | LoopPassRun) -> None:
        shown.append(f"# after {run.name}\n{print_ir(run.after)}")

    listener = keep if print_after_all else None
    match ir:
        case Graph():
            ir = run_passes(ir, passes, settings, listener)
        case Function():
            ir = run_loop_passes(ir, passes, listener)
        case TensorProgram() if passes:
            raise UsageError("passes run on a @graph or a @function, and the text is a @program")
    return "\n".join(shown) if print_after_all else print_ir(ir)
