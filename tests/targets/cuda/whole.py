"""`python -m tests.targets.cuda.whole`: the bench models whole, through CUDA's driver as the tests
have it, by kernels as C (`compiled.py`), against ONNX Runtime.

    python -m tests.targets.cuda.whole squeezenet --precision f16

Without names it takes all models, in f32 and in f16. An error is the largest difference, in shares
of the range of the output. The exit status is 1 if one is above 1e-4 in f32, or 1e-2 in f16, and
above twice the error of ONNX Runtime itself: what its optimizations change. That of rapidocr_det is
2.5e-3, whose output for random inputs is near 0.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile

import numpy as np
import onnxruntime

import farrier
from bench.workloads import NAMES, QUANTIZED, workload
from farrier.frontends.onnx.importer import import_model
from farrier.packaging.draws import random_inputs
from farrier.packaging.package import specs
from farrier_device.devices import libcuda as driver
from tests.targets.cuda.compiled import Machine
from tests.targets.cuda.libcuda import Library

MOST = {"f32": 1e-4, "f16": 1e-2, "bf16": 1e-1}
_MEMORY_BYTES = 8 << 30


def error_of(name, precision, cpu, folder):
    """Return the error of a model, that of ONNX Runtime, and the calls of the driver in a run."""
    of = workload(name)
    model = of.build()
    inputs, _ = specs(import_model(model, of.shapes))
    feed = random_inputs(inputs, 0)
    target = f"cuda:{cpu}"
    artifact = farrier.compile(
        model, target=target, shapes=of.shapes, precision=precision, verify=False
    )
    capability = int(cpu[3:-1]), int(cpu[-1])
    library = Library(capability, free_bytes=_MEMORY_BYTES, machine=Machine(folder))
    loaded, driver._loaded = driver._loaded, lambda: library
    try:
        artifact.run(feed)  # A sequence of launches becomes a graph when it comes again.
        library.calls.clear()
        results = list(artifact.run(feed).values())
    finally:
        driver._loaded = loaded
    expected = onnxruntime.InferenceSession(model).run(None, feed)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    plain = onnxruntime.InferenceSession(model, options).run(None, feed)
    return _most(results, expected), _most(plain, expected), library.calls


def _most(results, expected):
    return max(
        np.abs(result.astype(float) - right).max() / np.ptp(right.astype(float))
        for result, right in zip(results, expected, strict=True)
    )


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.targets.cuda.whole",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", help=f"of {', '.join((*NAMES, *QUANTIZED))}")
    parser.add_argument("--precision", choices=MOST)
    parser.add_argument("--cpu", default="sm_80", help="an architecture")
    arguments = parser.parse_args()
    precisions = [arguments.precision] if arguments.precision else ["f32", "f16"]
    are_right = []
    for precision in precisions:
        for name in arguments.models or NAMES:
            with tempfile.TemporaryDirectory() as folder:
                error, own, calls = error_of(name, precision, arguments.cpu, folder)
            are_right.append(error <= max(MOST[precision], 2 * own))
            counts = collections.Counter(calls)
            listed = ", ".join(f"{count} {call}" for call, count in counts.items())
            print(f"{name} {precision}: {error:.1e} (ONNX Runtime {own:.1e}); a run is {listed}")
            sys.stdout.flush()
    return 0 if all(are_right) else 1


if __name__ == "__main__":
    sys.exit(main())
