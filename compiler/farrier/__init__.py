"""Farrier: a compiler service that fits deep-learning models to the hardware on which they run.

    artifact = farrier.compile("model.onnx", shapes={"x": (1, 3, 224, 224)})
    outputs = artifact.run({"x": image})
    artifact.save("model.farrier")
    artifact = farrier.load("model.farrier")

`farrier.InferenceSession` offers the same under ONNX Runtime's names, with a cache on disk, and
`farrier.Client` through a server. Each name is imported when it is first used, so that the command
answers Ctrl-C before the compiler is loaded.
"""

from __future__ import annotations

TYPE_CHECKING = False  # Stands for that of `typing`, whose import takes milliseconds.
if TYPE_CHECKING:
    from typing import Any

    from farrier.api import compile as compile
    from farrier.errors import FarrierError as FarrierError
    from farrier.onnxruntime import InferenceSession as InferenceSession
    from farrier.onnxruntime import OrtValue as OrtValue
    from farrier.onnxruntime import RunOptions as RunOptions
    from farrier.onnxruntime import SessionOptions as SessionOptions
    from farrier.runtime.artifact import Artifact as Artifact
    from farrier.runtime.artifact import load as load
    from farrier.sdk.client import Client as Client

__all__ = [
    "Artifact",
    "Client",
    "FarrierError",
    "InferenceSession",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "compile",
    "load",
]
__version__ = "0.1.0"

_HOMES = {
    "Artifact": "farrier.runtime.artifact",
    "Client": "farrier.sdk.client",
    "FarrierError": "farrier.errors",
    "InferenceSession": "farrier.onnxruntime",
    "OrtValue": "farrier.onnxruntime",
    "RunOptions": "farrier.onnxruntime",
    "SessionOptions": "farrier.onnxruntime",
    "compile": "farrier.api",
    "explain": "farrier.pytorch.backend",
    "load": "farrier.runtime.artifact",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'farrier' has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
