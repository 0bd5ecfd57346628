"""Compare the analytic model's ranking of GPU schedules with counts of the kernels' operations and
memory accesses.

    python -m bench.gpus.ranks [MODEL …] [--target webgpu] [--candidates 24]

For each kernel of the models, candidates are drawn from its schedule space and lowered. Their
operations (on values and on addresses) and their bytes of device memory are counted in the loops,
multiplied by the trip counts. This needs no GPU, and shows nothing about its speed. The output is
Spearman's rank correlation of the predicted seconds with both counts: over the default schedules of
all kernels, and over the candidates of a kernel, as the median over kernels by rule.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import statistics
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from bench import models
from bench.terminal import open_console, run
from bench.workloads import NAMES, workload
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import model_of
from farrier.ir.addresses import flatten
from farrier.ir.affine import Simplifier
from farrier.ir.dim import typical
from farrier.ir.expr import Buffer, Expr, Load, MemoryScope
from farrier.ir.linear import to_expr
from farrier.ir.loop import For, Function, Stmt, Store
from farrier.ir.operands import operands
from farrier.ir.statements import below, walk_stmts
from farrier.ir.threads import PRIVATE
from farrier.ir.walk import walk
from farrier.lower.runner import run_loop_passes
from farrier.model_tuning.variant import make_variant
from farrier.passes import Settings, prepare
from farrier.space import Decisions, Space
from farrier.targets import Target, parse_target

MODELS = ("resnet18", "mobilenet_v2", "bert_base", "vit_b16")
_SHALLOW = {"bert_base": {"layers": 1}, "vit_b16": {"layers": 1}}  # Layers have equal kernels.
_ON_CHIP = (MemoryScope.WORKGROUP, *PRIVATE)
_FEWEST = 4  # Candidates without which a kernel has no order.


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """The predicted seconds of a candidate, and its numbers of operations and bytes."""

    seconds: float
    operations: float
    nbytes: float


def kernels_of(name: str, target: Target) -> Iterator[Space]:
    """Yield the schedule spaces of a model's kernels that run on the GPU."""
    source = workload(name)
    data = models.build(name, **_SHALLOW[name]) if name in _SHALLOW else source.build()
    settings = Settings(target, 1)
    imported = import_model(model_of(data), source.shapes)
    variant = make_variant(prepare(imported.graph, settings), settings)
    rules = target.backend.rules
    for choice in variant.choices.values():
        if choice.space.rule in rules:
            yield choice.space


def candidates_of(space: Space, target: Target, most: int) -> list[Candidate]:
    """Return the default candidate of a schedule space, and others drawn from it at random."""
    rows = space.candidates()
    picks = np.random.default_rng(0).choice(len(rows), min(most, len(rows)), replace=False)
    drawn = [space.default(), *(space.decisions(rows[pick]) for pick in picks)]
    return [_counted(space, decisions, target) for decisions in drawn]


def _counted(space: Space, decisions: Decisions, target: Target) -> Candidate:
    loops = space.schedule(decisions).function
    lowered = run_loop_passes(loops, target.backend.loop_passes(target))
    operations, nbytes = counts(lowered)
    return Candidate(space.seconds(decisions), operations, nbytes)


def counts(function: Function) -> tuple[float, float]:
    """Return the number of operators that a kernel evaluates, including address arithmetic, and the
    bytes of device memory that it accesses."""
    ranges = {s.var: s.extent for s in walk_stmts(function.body) if isinstance(s, For)}
    return _of_stmt(function.body, Simplifier(ranges))


def _of_stmt(stmt: Stmt, simplifier: Simplifier) -> tuple[float, float]:
    operations, nbytes = 0.0, 0.0
    for part in operands(stmt):
        more, moved = _of_expr(part, simplifier)
        operations, nbytes = operations + more, nbytes + moved
    if isinstance(stmt, Store):
        nbytes += _moved(stmt.buffer)
    for inner in below(stmt):
        more, moved = _of_stmt(inner, simplifier)
        operations, nbytes = operations + more, nbytes + moved
    times = max(1, typical(stmt.extent)) if isinstance(stmt, For) else 1
    return times * operations, times * nbytes


def _of_expr(expr: Expr, simplifier: Simplifier) -> tuple[float, float]:
    operations, nbytes = 0.0, 0.0
    for node in walk(expr):
        operations += 1
        if isinstance(node, Load):
            nbytes += _moved(node.buffer)
            offset = to_expr(flatten(node.buffer, node.indices, simplifier, 1))
            operations += sum(1 for _ in walk(offset))
    return operations, nbytes


def _moved(buffer: Buffer) -> int:
    return 0 if buffer.scope in _ON_CHIP else buffer.dtype.nbytes


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Spearman's rank correlation; equal values share their mean rank. It is NaN if all
    values of x, or all of y, are equal."""
    left, right = (_ranks(np.asarray(values)) for values in (x, y))
    spread = left.std() * right.std()
    mean = ((left - left.mean()) * (right - right.mean())).mean()
    return float(mean / spread) if spread else float("nan")


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    _, place, number = np.unique(values, return_inverse=True, return_counts=True)
    ranks: npt.NDArray[np.float64] = (np.cumsum(number) - (number - 1) / 2)[place]
    return ranks


def main() -> int:
    arguments = _parser().parse_args()
    console = open_console()
    return run(lambda console: _command(arguments, console), console)


def _command(arguments: argparse.Namespace, console: Console) -> int:
    target = parse_target(arguments.target)
    defaults: list[Candidate] = []
    within: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    for name in arguments.models or MODELS:
        for space in kernels_of(name, target):
            candidates = candidates_of(space, target, arguments.candidates)
            defaults.append(candidates[0])
            if len(candidates) > _FEWEST:
                within[space.rule.name].append(_correlations(candidates))
    console.print(_table(defaults, within))
    return 0


def _correlations(candidates: Sequence[Candidate]) -> tuple[float, float]:
    """Return the rank correlations of the predicted seconds with the operations, and with the
    bytes."""
    seconds = [each.seconds for each in candidates]
    return (
        rank_correlation(seconds, [each.operations for each in candidates]),
        rank_correlation(seconds, [each.nbytes for each in candidates]),
    )


def _table(defaults: Sequence[Candidate], within: dict[str, list[tuple[float, float]]]) -> Table:
    table = Table("", "kernels", "operations", "bytes", box=None)
    rows = {"defaults of all kernels": (len(defaults), _correlations(defaults))}
    for rule, each in sorted(within.items()):
        rows[f"candidates of a kernel, {rule}"] = (len(each), _medians(each))
    for title, (count, (operations, nbytes)) in rows.items():
        table.add_row(title, str(count), f"{operations:.2f}", f"{nbytes:.2f}")
    return table


def _medians(each: Sequence[tuple[float, float]]) -> tuple[float, float]:
    columns = ([value for value in column if value == value] for column in zip(*each, strict=True))
    operations, nbytes = (
        statistics.median(values) if values else float("nan") for values in columns
    )
    return operations, nbytes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpus.ranks", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--target", default="webgpu")
    parser.add_argument("--candidates", type=int, default=24)
    return parser


if __name__ == "__main__":
    sys.exit(main())
