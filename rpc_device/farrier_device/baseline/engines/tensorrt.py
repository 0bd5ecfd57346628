"""An adapter for TensorRT, as an execution provider of ONNX Runtime.

pip install onnxruntime-gpu onnx tensorrt, and NVIDIA's libraries for them
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Arrays = dict[str, npt.NDArray[Any]]


def load(
    model: str, inputs: Arrays, threads: int, precision: str
) -> tuple[Callable[[], Any], Callable[[Any], Arrays]]:
    """Load a model. The first run builds TensorRT's engine, so loading takes minutes."""
    import runpy
    from pathlib import Path

    import onnx

    adapter = runpy.run_path(str(Path(__file__).with_name("onnxruntime_cuda.py")))
    by_provider: Callable[..., tuple[Callable[[], Any], Callable[[Any], Arrays]]]
    by_provider = adapter["by_provider"]
    settings = {"trt_fp16_enable": precision == "f16"}
    return by_provider("TensorrtExecutionProvider", settings, onnx.load(model), inputs, threads)
