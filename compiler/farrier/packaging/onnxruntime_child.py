"""The main program of the process in which ONNX Runtime runs a model as a reference
(`reference_child.py`).

An order also has "folder", the folder of the external data of a model without a path, and
"is_plain", which switches ONNX Runtime's optimizer off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from farrier.packaging.reference_child import Array, read_arrays, serve_engine


def serve() -> None:
    """Run the main loop of the process."""
    serve_engine(_start, _outputs)


def _start() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


def _outputs(order: Mapping[str, Any], files: Sequence[int]) -> list[Array | list[Array]]:
    """Run the model and return its outputs. Afterwards the session is closed, because it holds the
    weights."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Prepacking would make a third copy of the weights.
    options.add_session_config_entry("session.disable_prepacking", "1")
    if order["is_plain"]:  # It maps the data; derived weights live only from node to node.
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
        options.enable_cpu_mem_arena = False
    folder = order["folder"]
    if order["extra"] and order["path"] is not None:  # It gets the message without a path.
        folder = str(Path(order["path"]).parent)
    if folder is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
    session = onnxruntime.InferenceSession(
        _source(order, files), options, providers=["CPUExecutionProvider"]
    )
    inputs = read_arrays(order["inputs"].values(), files[order["path"] is None :])
    feeds = dict(zip(order["inputs"], inputs, strict=True))
    outputs = session.run([*order["names"], *order["extra"]], feeds)
    return [_arrays(output) for output in outputs]


def _arrays(output: Any) -> Array | list[Array]:
    """Return an output as an array, or a sequence as a list of arrays. Maps become an array with a
    row for each map, and a column for each key in ascending order."""
    if not isinstance(output, list):
        return np.asarray(output)
    if output and isinstance(output[0], dict):
        return np.array([[row[key] for key in sorted(row)] for row in output], np.float32)
    return [np.asarray(item) for item in output]


def _source(order: Mapping[str, Any], files: Sequence[int]) -> str | bytes:
    """Return the argument from which a session is created: a path; or the content of the model
    file, if its data lies in another folder or if the model must return additional values."""
    path: str = order["path"] or f"/proc/self/fd/{files[0]}"
    if order["extra"]:
        from farrier.frontends.onnx.importer import exposed

        return exposed(Path(path).read_bytes(), order["extra"])
    return path if order["folder"] is None else Path(path).read_bytes()
