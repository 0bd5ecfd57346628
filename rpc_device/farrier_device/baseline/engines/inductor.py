"""An adapter for PyTorch's compiler Inductor with frozen weights; onnx2torch converts the model.

pip install torch onnx2torch, and a C++ compiler: inductor writes C++
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]


def load(
    model: str, inputs: Arrays, threads: int
) -> tuple[Callable[[], Any], Callable[[Any], Arrays]]:
    """Load a model. Its inputs and outputs share memory with numpy arrays, so that nothing is
    copied."""
    import onnx
    import onnx2torch
    import torch

    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True
    proto = onnx.load(model)
    constants = {value.name for value in proto.graph.initializer}
    order = [value.name for value in proto.graph.input if value.name not in constants]
    outputs = [output.name for output in proto.graph.output]
    module = torch.compile(onnx2torch.convert(proto).eval())
    tensors = [torch.from_numpy(inputs[name]) for name in order]

    def run() -> list[npt.NDArray[Any]]:
        with torch.inference_mode():
            result = module(*tensors)
        results = [result] if isinstance(result, torch.Tensor) else list(result)
        return [tensor.numpy() for tensor in results]

    return run, lambda results: dict(zip(outputs, results, strict=True))
