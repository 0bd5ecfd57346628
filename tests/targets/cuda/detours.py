"""`python -m tests.targets.cuda.detours resnet50 --precision f16`: the memory traffic of a model's
kernels, in shares of the fewest sectors of global memory and wavefronts of shared memory.

    python -m tests.targets.cuda.detours resnet50_int8 --most 1.25

The emulator runs some blocks of each launch of each kernel, by the default schedule. A model's
figure is the mean over its kernels, each weighted by its operations. The exit status is 1 if that
of sectors is above `--most`, or that of wavefronts above 1.1.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from bench.workloads import NAMES, QUANTIZED, workload
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import model_of
from farrier.ir.dim import number
from farrier.lower.runner import run_loop_passes
from farrier.model_tuning.variant import make_variant
from farrier.options.precision import Precision
from farrier.passes import Settings, prepare
from farrier.targets import parse_target
from farrier_device.program import HOST
from tests.targets.cuda import emulator
from tests.targets.cuda.ptx import kernels_of
from tests.targets.cuda.running import run_kernels
from tests.targets.cuda.traffic import Traffic

_MOST_WAVEFRONTS = 1.1
_BLOCKS = 6  # Of each launch: more show the same, as the blocks of a launch are alike.


def kernels(model, shapes, target, precision=Precision.F32):
    """Yield each kernel of a model on the device: its choice, its lowered loops and its PTX."""
    settings = Settings(target, 1, precision=precision)
    graph = prepare(import_model(model_of(model), shapes).graph, settings)
    for choice in make_variant(graph, settings).choices.values():
        if choice.site.space == HOST:
            continue
        machine = target.part(choice.site.space)
        loops = choice.space.schedule(choice.decisions).function
        function = run_loop_passes(loops, machine.backend.loop_passes(machine))
        yield choice, function, machine.backend.render(function, machine)


def traffic_of(function, text):
    """Return the traffic of some blocks of each launch of a kernel."""
    traffic = Traffic()
    rng = np.random.default_rng(0)

    def launch(kernel, blocks, threads, arguments, memory):
        for array in memory.arrays.values():
            array.written[:] = True  # By blocks of an earlier launch that did not run.
        emulator.launch(kernel, blocks, threads, arguments, memory, traffic, _BLOCKS)

    inputs = {buffer.name: _drawn(rng, buffer) for buffer in function.params}
    run_kernels(kernels_of(text), function, inputs, launch)
    return traffic


def _drawn(rng, buffer):
    """Return small numbers of a buffer's type, which are valid indices as well."""
    shape = tuple(number(extent) for extent in buffer.shape)
    return rng.integers(0, 2, shape).astype(buffer.dtype.numpy)


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.targets.cuda.detours",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", help=f"of {', '.join((*NAMES, *QUANTIZED))}")
    parser.add_argument("--target", default="cuda:sm_80")
    parser.add_argument("--precision", default="f32", choices=[each.value for each in Precision])
    parser.add_argument("--most", type=float, default=float("inf"), help="sectors of a model")
    parser.add_argument("--each", action="store_true", help="list the kernels and instructions")
    arguments = parser.parse_args()
    target, precision = parse_target(arguments.target), Precision(arguments.precision)
    are_good = []
    for name in arguments.models:
        total, sums = 0, np.zeros(2)
        source = workload(name)
        for choice, function, text in kernels(source.build(), source.shapes, target, precision):
            traffic, operations = traffic_of(function, text), choice.operations * choice.calls
            own = [max(1.0, traffic.over_the_fewest(space)) for space in ("global", "shared")]
            own = np.array(own)  # A kernel without accesses has no detours.
            total += operations
            sums += operations * own
            if arguments.each:
                rule = choice.space.rule_of(choice.decisions).name
                figures = f"{operations / 1e6:8.0f} M {own[0]:.2f} {own[1]:.2f}"
                print(f"    {figures} {rule} {choice.task.name}")
                for (_, line), (count, fewest) in traffic.counts.items():
                    if count > fewest:
                        print(f"        {count:8} for {fewest:8} {line}")
        sectors, wavefronts = sums / total
        are_good.append(sectors <= arguments.most and wavefronts <= _MOST_WAVEFRONTS)
        print(f"{name}: {sectors:.3f} of the fewest sectors, {wavefronts:.3f} of the wavefronts")
        sys.stdout.flush()
    return 0 if all(are_good) else 1


if __name__ == "__main__":
    sys.exit(main())
