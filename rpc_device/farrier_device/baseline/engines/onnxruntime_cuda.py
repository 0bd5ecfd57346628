"""An adapter for ONNX Runtime with the CUDA execution provider; for f16, ONNX Runtime's converter
rewrites the model.

pip install onnxruntime-gpu onnx, and NVIDIA's libraries for it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Arrays = dict[str, npt.NDArray[Any]]


def load(
    model: str, inputs: Arrays, threads: int, precision: str
) -> tuple[Callable[[], Any], Callable[[Any], Arrays]]:
    """Load a model. Each run copies the inputs to the GPU, and the outputs back."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    proto = onnx.load(model)
    if precision == "f16":
        proto = convert_float_to_float16(proto, keep_io_types=True)
    return by_provider("CUDAExecutionProvider", {}, proto, inputs, threads)


def by_provider(
    provider: str, settings: Mapping[str, Any], proto: Any, inputs: Arrays, threads: int
) -> tuple[Callable[[], Any], Callable[[Any], Arrays]]:
    """Load a model with an execution provider for GPUs, which multiplies f32 in full precision (no
    TF32)."""
    import os

    import onnxruntime as ort

    if provider not in ort.get_available_providers():
        raise RuntimeError(
            f"the onnxruntime installed here has no {provider}; install onnxruntime-gpu"
        )
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # NVIDIA's libraries heed it.
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    for value in proto.graph.input:
        dims = value.type.tensor_type.shape.dim if value.name in inputs else ()
        for dim, size in zip(dims, inputs[value.name].shape if dims else (), strict=True):
            if dim.dim_param:
                options.add_free_dimension_override_by_name(dim.dim_param, size)
    providers = [(provider, dict(settings)), "CPUExecutionProvider"]
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=providers)
    if session.get_providers()[0] != provider:
        raise RuntimeError(f"the onnxruntime installed here cannot start its {provider}")
    session.disable_fallback()
    names = [output.name for output in session.get_outputs()]
    return lambda: session.run(None, inputs), lambda arrays: dict(zip(names, arrays, strict=True))
