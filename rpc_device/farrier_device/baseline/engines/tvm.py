"""An adapter for Apache TVM with its default pipeline, without tuning; the model is compiled when
it is loaded.

pip install apache-tvm onnx
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]


def load(
    model: str, inputs: Arrays, threads: int
) -> tuple[Callable[[], Any], Callable[[Any], Arrays]]:
    """Load a model. Inputs are bound once; each run's outputs are copied to numpy arrays."""
    os.environ["TVM_NUM_THREADS"] = str(threads)  # The pool reads it at the first run.
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    proto = onnx.load(model)
    constants = {value.name for value in proto.graph.initializer}
    order = [value.name for value in proto.graph.input if value.name not in constants]
    outputs = [output.name for output in proto.graph.output]
    module = from_onnx(
        proto,
        shape_dict={name: list(inputs[name].shape) for name in order},
        dtype_dict={name: str(inputs[name].dtype) for name in order},
    )
    target = tvm.target.Target.from_device(tvm.cpu())
    device = tvm.cpu()
    machine = relax.VirtualMachine(tvm.compile(module, target), device)
    tensors = [tvm.runtime.tensor(inputs[name], device) for name in order]
    main = machine["main"]

    def run() -> list[npt.NDArray[Any]]:
        result = main(*tensors)
        results = [result] if hasattr(result, "numpy") else list(result)
        return [tensor.numpy() for tensor in results]

    return run, lambda results: dict(zip(outputs, results, strict=True))
