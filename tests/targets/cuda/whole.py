"""`python -m tests.targets.cuda.whole`: the bench models whole, through CUDA's driver as the tests
have it, by kernels as C (`compiled.py`), against the operators in float64.

    python -m tests.targets.cuda.whole squeezenet --precision f16
    python -m tests.targets.cuda.whole

Without names it takes all models, in f32 and in f16, and those of bytes. Inputs look like real ones
(`realistic.py`). An error is the largest difference from float64, in shares of the range of the
output. Next to it are two of ONNX Runtime on the processor: in f16 that of the model that its
converter makes, and that of f32 where only the factors of products are rounded to f16, which every
product on tensor cores does. The exit status is 1 if an error is above 1e-4 in f32, above 1e-2 in
tf32, in f16 above 1e-2 and above what rounded factors alone do, or for bytes above twice that of
ONNX Runtime; or if a run is anything but copies of inputs, the launch of one graph, and copies of
outputs. The last lines are a table for `docs/cuda_proofs.md`.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.transformers.float16 import convert_float_to_float16

import farrier
from bench.compare import difference, in_float64
from bench.workloads import NAMES, QUANTIZED, workload
from farrier.errors import FarrierError
from farrier.frontends.onnx.importer import import_model
from farrier.packaging.package import specs
from farrier_device.cuda_library import capability
from farrier_device.devices import libcuda as driver
from tests.targets.cuda.compiled import Machine
from tests.targets.cuda.libcuda import Library
from tests.targets.cuda.ptx import PtxError
from tests.targets.cuda.realistic import realistic_inputs

MOST = {"f32": 1e-4, "f16": 1e-2, "tf32": 1e-2, "bf16": 1e-1}
_PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
_MEMORY_BYTES = 8 << 30


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of a model: its error, that of ONNX Runtime, and that of rounded factors, which is None
    but in f16; the least range of an output, the kernels of its graph, and the calls of the driver
    between the copies of inputs and those of outputs."""

    model: str
    precision: str
    error: float
    peer: float
    rounded: float | None
    range: float
    kernels: int
    between: tuple[str, ...]

    @property
    def is_right(self):
        most = 2 * self.peer if self.model in QUANTIZED else MOST[self.precision]
        return self.error <= max(most, self.rounded or 0) and self.between == ("cuGraphLaunch",)

    @property
    def row(self):
        form = "int8" if self.model in QUANTIZED else self.precision
        rounded = "" if self.rounded is None else f"{self.rounded:.1e}"
        return (
            f"| {self.model} | {form} | {self.error:.1e} | {self.peer:.1e} | {rounded} |"
            f" {self.range:.2g} | {self.kernels} | {', '.join(self.between)} |"
        )


HEADER = """
| model | precision | error | ONNX Runtime | rounded factors | range | kernels | a run |
|---|---|---|---|---|---|---|---|"""


def run(name, precision, cpu, folder):
    """Run a model twice, and return the second run: a sequence of launches that comes again is a
    graph."""
    of = workload(name)
    model = of.build()
    inputs, outputs = specs(import_model(model, of.shapes))
    feed = realistic_inputs(inputs, is_text=name.startswith("rapidocr"))
    artifact = farrier.compile(
        model, target=f"cuda:{cpu}", shapes=of.shapes, precision=precision, verify=False
    )
    library = Library(capability(cpu), free_bytes=_MEMORY_BYTES, machine=Machine(folder))
    loaded, driver._loaded = driver._loaded, lambda: library
    try:
        artifact.run(feed)
        library.calls.clear()
        library.launches.clear()
        results = artifact.run(feed)
    finally:
        driver._loaded = loaded
    wanted = in_float64(model, feed)
    rounded = None
    if precision == "f16":  # An optimizer may take casts away.
        rounded = difference(_by_onnxruntime(_rounded(model), feed, is_optimized=False), wanted)
    return Run(
        name,
        precision,
        difference(results, wanted),
        difference(_by_onnxruntime(_converted(model, precision), feed), wanted),
        rounded,
        min(float(np.ptp(array)) for array in wanted.values()),
        len(library.launches),
        _between(library.calls, len(inputs), len(outputs)),
    )


def _between(calls, inputs, outputs):
    first, last = ["cuMemcpyHtoDAsync_v2"] * inputs, ["cuMemcpyDtoHAsync_v2"] * outputs
    if calls[:inputs] != first or calls[-outputs:] != last:
        return tuple(calls)
    return tuple(calls[inputs:-outputs])


def _converted(model, precision):
    if precision != "f16":
        return model
    halves = convert_float_to_float16(onnx.load_model_from_string(model), keep_io_types=True)
    return halves.SerializeToString()


def _rounded(model):
    """Return a model whose products have factors that are rounded to f16 and back."""
    rounded = onnx.load_model_from_string(model)
    nodes = []
    for node in rounded.graph.node:
        for at, name in enumerate(node.input[:2] if node.op_type in _PRODUCTS else ()):
            half, node.input[at] = f"half_{len(nodes)}", f"rounded_{len(nodes)}"
            nodes += [
                helper.make_node("Cast", [name], [half], to=TensorProto.FLOAT16),
                helper.make_node("Cast", [half], [node.input[at]], to=TensorProto.FLOAT),
            ]
        nodes.append(node)
    del rounded.graph.node[:]
    rounded.graph.node.extend(nodes)
    return rounded.SerializeToString()


def _by_onnxruntime(model, feed, is_optimized=True):
    options = onnxruntime.SessionOptions()
    if not is_optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def _cases(names, precision):
    """Yield models with their precisions: all, if none has a name."""
    floats = [name for name in names if name not in QUANTIZED]
    of_bytes = [name for name in names if name in QUANTIZED]
    if not names:
        floats, of_bytes = NAMES, () if precision else QUANTIZED
    for each in [precision] if precision else ["f32", "f16"]:
        yield from ((name, each) for name in floats)
    yield from ((name, "f32") for name in of_bytes)


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.targets.cuda.whole",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", help=f"of {', '.join((*NAMES, *QUANTIZED))}")
    parser.add_argument("--precision", choices=["f32", "f16", "tf32"])
    parser.add_argument("--cpu", default="sm_80", help="an architecture")
    arguments = parser.parse_args()
    runs, failed = [], 0
    for name, precision in _cases(arguments.models, arguments.precision):
        try:
            with tempfile.TemporaryDirectory() as folder:
                runs.append(run(name, precision, arguments.cpu, folder))
        except (FarrierError, PtxError) as error:
            failed += 1
            print(f"{name} {precision}: {error}", flush=True)
        else:
            print(("" if runs[-1].is_right else "wrong: ") + runs[-1].row, flush=True)
    print("\n".join([HEADER, *(each.row for each in runs)]))
    return 0 if not failed and all(each.is_right for each in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
