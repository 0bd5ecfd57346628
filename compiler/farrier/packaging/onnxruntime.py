"""ONNX Runtime as a reference engine (`reference_engine.py`)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from farrier.packaging import onnxruntime_child
from farrier.packaging.reference_engine import ReferenceEngine
from farrier_device.storage.durable import write_all


class OnnxRuntime(ReferenceEngine):
    """An ONNX Runtime process for an ONNX model."""

    title = "ONNX Runtime"
    module = distribution = "onnxruntime"
    serve = staticmethod(onnxruntime_child.serve)

    @contextlib.contextmanager
    def _source(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Yield the fields of an order that locate the model, and the open files: a path, whose
        folder holds the external data; or else the content of the model file, with the data in a
        folder."""
        model = self._model
        if model.path is not None and (model.has_folder or not model.locations):
            yield {"path": str(model.path.absolute()), "folder": None}, []
            return
        message: bytes | memoryview = model.message
        folder: Path | None = None
        if model.locations:
            from farrier.frontends.onnx.importer import relocated  # It imports onnx, which is slow.

            message, folder = relocated(model)
        file = os.memfd_create("farrier-model", os.MFD_CLOEXEC)
        try:
            write_all(file, memoryview(message))
            yield {"path": None, "folder": None if folder is None else str(folder)}, [file]
        finally:
            os.close(file)
