"""One engine in one process: `python -m farrier.bench.engine NAME MODEL INPUTS OUTPUTS THREADS`.

Loads the model, runs it once on the arrays of INPUTS (.npz), writes the outputs to OUTPUTS (.npz)
and prints `ready VERSION LOAD_SECONDS`. Then for each line `run N` on standard input it runs the
model N times and prints the nanoseconds of each, in one line. Ends with standard input.
"""

from __future__ import annotations

import importlib.metadata
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
Run = Callable[[], Any]

# What makes an engine: model path, inputs, threads → (one run, outputs of a run by name)
Loader = Callable[[str, Arrays, int], tuple[Run, Callable[[], Arrays]]]


def load_farrier(model: str, inputs: Arrays, threads: int) -> tuple[Run, Callable[[], Arrays]]:
    from farrier.artifact.artifact import load

    session = load(model).session(threads)
    return lambda: session.run(inputs), lambda: session.run(inputs)


def load_onnxruntime(model: str, inputs: Arrays, threads: int) -> tuple[Run, Callable[[], Arrays]]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    probe = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    sizes: dict[str, set[int]] = {}
    for spec in probe.get_inputs():
        for dim, size in zip(spec.shape, inputs[spec.name].shape, strict=True):
            if isinstance(dim, str):
                sizes.setdefault(dim, set()).add(size)
    # Exporters write "?" for any unknown dim: a name that stands for two sizes is none.
    symbols = {dim: found.pop() for dim, found in sizes.items() if len(found) == 1}
    session = probe
    if symbols:
        for dim, size in symbols.items():
            options.add_free_dimension_override_by_name(dim, size)
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [spec.name for spec in session.get_outputs()]

    def run() -> list[npt.NDArray[Any]]:
        arrays: list[npt.NDArray[Any]] = session.run(None, inputs)
        return arrays

    return run, lambda: dict(zip(names, run(), strict=True))


def load_openvino(model: str, inputs: Arrays, threads: int) -> tuple[Run, Callable[[], Arrays]]:
    import openvino as ov

    core = ov.Core()
    network = core.read_model(model)
    network.reshape({name: array.shape for name, array in inputs.items()})
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(network, "CPU", settings).create_infer_request()
    for name, array in inputs.items():
        request.set_tensor(name, ov.Tensor(array))

    def outputs() -> Arrays:
        request.infer()
        return {
            port.get_any_name(): np.array(request.get_output_tensor(index).data)
            for index, port in enumerate(network.outputs)
        }

    return request.infer, outputs


LOADERS: dict[str, Loader] = {
    "farrier": load_farrier,
    "onnxruntime": load_onnxruntime,
    "openvino": load_openvino,
}


def main(arguments: list[str]) -> None:
    name, model, inputs_path, outputs_path, threads = arguments
    with np.load(inputs_path) as file:
        inputs = {key: np.ascontiguousarray(file[key]) for key in file.files}
    start = time.perf_counter()
    run, outputs = LOADERS[name.partition(":")[0]](model, inputs, int(threads))
    arrays = outputs()
    seconds = time.perf_counter() - start
    np.savez(outputs_path, **arrays)  # type: ignore[arg-type]
    print("ready", importlib.metadata.version(name.partition(":")[0]), f"{seconds:.3f}", flush=True)
    for line in sys.stdin:
        samples = []
        for _ in range(int(line.removeprefix("run "))):
            begin = time.perf_counter_ns()
            run()
            samples.append(time.perf_counter_ns() - begin)
        print(*samples, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
