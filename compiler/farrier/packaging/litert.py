"""LiteRT as a reference engine, using its reference kernels: the results of the optimized ones
differ.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from farrier.packaging import litert_child
from farrier.packaging.reference_engine import ReferenceEngine
from farrier_device.storage.durable import write_all


class LiteRt(ReferenceEngine):
    """A LiteRT process for a TFLite model without variables."""

    title = "LiteRT"
    module, distribution = "ai_edge_litert", "ai-edge-litert"
    serve = staticmethod(litert_child.serve)

    @contextlib.contextmanager
    def _source(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Yield the fields of an order that locate the model: its path, or an open file with its
        content."""
        if self._model.path is not None:
            yield {"path": str(self._model.path.absolute())}, []
            return
        file = os.memfd_create("farrier-model", os.MFD_CLOEXEC)
        try:
            write_all(file, self._model.message)
            yield {"path": None}, [file]
        finally:
            os.close(file)
