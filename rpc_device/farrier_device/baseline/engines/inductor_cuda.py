"""An adapter for PyTorch's compiler Inductor on an NVIDIA GPU, with its launches as CUDA graphs;
onnx2torch converts the model. In f16, the weights and activations are converted to f16.

pip install torch onnx2torch
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]


def load(
    model: str, inputs: Arrays, threads: int, precision: str
) -> tuple[Callable[[], Any], Callable[[Any], Arrays]]:
    """Load a model. Each run copies the inputs to the GPU, and the outputs back."""
    import onnx
    import onnx2torch
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no CUDA device here")
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch._inductor.config.freezing = True
    proto = onnx.load(model)
    constants = {value.name for value in proto.graph.initializer}
    order = [value.name for value in proto.graph.input if value.name not in constants]
    outputs = [output.name for output in proto.graph.output]
    converted = onnx2torch.convert(proto).eval().cuda()
    floats = torch.float16 if precision == "f16" else torch.float32
    module = torch.compile(converted.to(floats), mode="reduce-overhead")

    def moved(array: npt.NDArray[Any]) -> Any:
        tensor = torch.from_numpy(array)
        return tensor.to("cuda", floats if tensor.is_floating_point() else tensor.dtype)

    def run() -> list[npt.NDArray[Any]]:
        with torch.inference_mode():
            result = module(*(moved(inputs[name]) for name in order))
        results = [result] if isinstance(result, torch.Tensor) else list(result)
        return [
            (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy()
            for tensor in results
        ]

    return run, lambda results: dict(zip(outputs, results, strict=True))
