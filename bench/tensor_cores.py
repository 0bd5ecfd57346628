"""`python -m bench.tensor_cores resnet50 bert_base --precision f16`: the share of a model's
multiply-adds that run on tensor cores, with default schedules. Nothing is executed.

    python -m bench.tensor_cores resnet50_int8
    python -m bench.tensor_cores resnet50 bert_base --precision f16 --least 0.95

The multiply-adds of a kernel are those of the stages that sum products, times the number of calls.
They run on tensor cores if the sums are stored in fragments, and by `wgmma` if these are those of
warpgroups. Below the share, the kernels with most
other multiply-adds are listed.
"""

from __future__ import annotations

import argparse
import collections
import sys

from bench.workloads import NAMES, QUANTIZED, workload
from farrier.compile_pool.choose import ScheduledTask
from farrier.errors import FarrierError
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import model_of
from farrier.ir.expr import Binary, BinaryOp, MemoryScope, Reduce, ReduceOp
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.threads import FRAGMENTS
from farrier.model_tuning.variant import make_variant
from farrier.options.precision import Precision
from farrier.passes import Settings, prepare
from farrier.schedule.nest import allocated
from farrier.space.operations import count_points
from farrier.targets import Target, parse_target

_SHOWN = 5  # Kernels.
_SUFFIXES = ("_sums", "_parts_sums", "_sum_parts_sums")  # Of a stage's fragments, by the rules.


def share(
    name: str, target: Target, precision: Precision
) -> tuple[float, float, list[tuple[str, int]]]:
    """Return the share of a model's multiply-adds on tensor cores, the share of multiply-adds by
    products of warpgroups, and the kernels with other ones, in descending order of their number."""
    source = workload(name)
    settings = Settings(target, 1, precision=precision)
    graph = prepare(import_model(model_of(source.build()), source.shapes).graph, settings)
    on_cores, by_warpgroups, elsewhere = 0, 0, collections.Counter[str]()
    for choice in make_variant(graph, settings).choices.values():
        inside, of_warpgroups, outside = _products(choice)
        on_cores += choice.calls * (inside + of_warpgroups)
        by_warpgroups += choice.calls * of_warpgroups
        if outside:
            elsewhere[choice.program.name] += choice.calls * outside
    total = on_cores + elsewhere.total()
    shares = on_cores / max(1, total), by_warpgroups / max(1, total)
    return *shares, elsewhere.most_common(_SHOWN)


def _products(choice: ScheduledTask) -> tuple[int, int, int]:
    """Return the numbers of a kernel's multiply-adds on tensor cores by products of subgroups and
    by those of warpgroups, and of those elsewhere."""
    program = choice.program
    if not isinstance(program, TensorProgram):
        return 0, 0, 0
    buffers = allocated(choice.space.schedule(choice.decisions).function.body)
    scopes = {each.name: each.scope for each in buffers}
    counts = collections.Counter[MemoryScope | None]()
    for stage in program.stages:
        names = (f"{stage.buffer.name}{suffix}" for suffix in _SUFFIXES)
        scope = next((scopes[name] for name in names if scopes.get(name) in FRAGMENTS), None)
        counts[scope] += _of_stage(stage)
    return counts[MemoryScope.SUBGROUP], counts[MemoryScope.WARPGROUP], counts[None]


def _of_stage(stage: Stage) -> int:
    body = stage.body
    if not isinstance(body, Reduce) or body.op is not ReduceOp.SUM:
        return 0
    if not isinstance(body.body, Binary) or body.body.op is not BinaryOp.MUL:
        return 0
    return int(count_points(stage.axes) * count_points(body.axes))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.tensor_cores",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join((*NAMES, *QUANTIZED))
    parser.add_argument("models", nargs="+", help=f"of {names}")
    parser.add_argument("--target", default="cuda:sm_80")
    parser.add_argument("--precision", default="f32", choices=[each.value for each in Precision])
    parser.add_argument("--least", type=float, default=0.0, help="exit status 1 below this share")
    arguments = parser.parse_args()
    try:
        target, precision = parse_target(arguments.target), Precision(arguments.precision)
        shares = []
        for name in arguments.models:
            part, by_warpgroups, elsewhere = share(name, target, precision)
            shares.append(part)
            own = f", {by_warpgroups:.2%} by wgmma" if by_warpgroups else ""
            print(f"{name}: {part:.2%} on tensor cores of {arguments.target}{own}")
            for kernel, count in elsewhere:
                print(f"    {count / 1e6:10.1f} million elsewhere in {kernel}")
    except FarrierError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0 if min(shares) >= arguments.least else 1


if __name__ == "__main__":
    sys.exit(main())
