"""ONNX Runtime's Python API, implemented by Farrier: `import farrier.onnxruntime as ort`.

docs/guide/onnxruntime.md lists the differences. The package `onnxruntime` is not needed, and never
imported here.
"""

from farrier.onnxruntime.binding import IOBinding
from farrier.onnxruntime.errors import (
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    NotImplemented,
    RuntimeException,
)
from farrier.onnxruntime.metadata import ModelMetadata, NodeArg
from farrier.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from farrier.onnxruntime.providers import AVAILABLE
from farrier.onnxruntime.session import InferenceSession
from farrier.onnxruntime.values import OrtValue

__all__ = [
    "EPFail",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelMetadata",
    "NoSuchFile",
    "NodeArg",
    "NotImplemented",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "get_available_providers",
    "get_device",
]


def get_available_providers() -> list[str]:
    return list(AVAILABLE)


def get_device() -> str:
    return "CPU"
