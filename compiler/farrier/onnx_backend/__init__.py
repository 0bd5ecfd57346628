"""ONNX's standard backend interface: `import farrier.onnx_backend as backend`."""

from __future__ import annotations

from farrier.onnx_backend.backend import (
    FarrierBackend,
    Prepared,
    PreparedModel,
    Run,
    is_compatible,
    prepare,
    run_model,
    run_node,
    supports_device,
)

__all__ = [
    "FarrierBackend",
    "Prepared",
    "PreparedModel",
    "Run",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]
