"""The main program of the process in which LiteRT runs a model as a reference
(`reference_child.py`).
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from farrier.frontends.tflite.interface import Interface
from farrier.frontends.tflite.reading import read_model
from farrier.packaging.reference_child import Array, Order, read_arrays, serve_engine


def serve() -> None:
    """Run the main loop of the process."""
    serve_engine(_start, _outputs)


def _start() -> str:
    from ai_edge_litert import interpreter  # noqa: F401 (It is slow to import.)

    return importlib.metadata.version("ai-edge-litert")


def _outputs(order: Order, files: Sequence[int]) -> list[Array | list[Array]]:
    """Run the model and return its outputs. Sizes that the model leaves open are taken from the
    inputs."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    data = Path(order["path"] or f"/proc/self/fd/{files[0]}").read_bytes()
    arrays = read_arrays(order["inputs"].values(), files[order["path"] is None :])
    feeds = dict(zip(order["inputs"], arrays, strict=True))
    interface = Interface(read_model(data))
    interpreter = Interpreter(
        model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    details = interpreter.get_input_details()
    for detail, name in zip(details, interface.inputs, strict=True):
        interpreter.resize_tensor_input(detail["index"], feeds[name].shape)
    interpreter.allocate_tensors()
    for detail, name in zip(details, interface.inputs, strict=True):
        interpreter.set_tensor(detail["index"], np.ascontiguousarray(feeds[name]))
    interpreter.invoke()
    results = {
        name: np.array(interpreter.get_tensor(detail["index"]))
        for name, detail in zip(interface.outputs, interpreter.get_output_details(), strict=True)
    }
    return [results[name] for name in order["names"]]
