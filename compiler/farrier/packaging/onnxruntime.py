"""ONNX Runtime as a reference (`reference_engine.py`)."""

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
    """ONNX Runtime's process for an ONNX model."""

    title = "ONNX Runtime"
    module = distribution = "onnxruntime"
    serve = staticmethod(onnxruntime_child.serve)

    @contextlib.contextmanager
    def _source(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Yield the source from which the process reads the model, and its open files: a path,
        whose folder holds the data; or else the message, with data in a folder."""
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
