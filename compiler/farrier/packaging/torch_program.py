"""torch as a reference engine: it loads the exported program and runs it in eager mode."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from farrier.packaging import torch_child
from farrier.packaging.reference_engine import ReferenceEngine
from farrier_device.storage.durable import write_all

# The variables with which the process finds libraries and limits its threads. It gets no other
# variables of the user's environment, which may hold secrets.
_HANDED_ON = (
    "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "PYTHONHOME",
    "PYTHONHASHSEED",
)


class TorchProgram(ReferenceEngine):
    """A torch process for a `.pt2` file. Its loader unpickles members and evaluates formulas, so
    the process restricts its own access before it reads the file, and ends if it cannot."""

    title = "PyTorch"
    module = distribution = "torch"
    serve = staticmethod(torch_child.serve)

    def _environment(self) -> Mapping[str, str]:
        return {name: os.environ[name] for name in _HANDED_ON if name in os.environ}

    @contextlib.contextmanager
    def _source(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Yield the program as an open file, because the process cannot open any of the user's
        files."""
        if self._model.path is not None:
            file = os.open(self._model.path, os.O_RDONLY | os.O_CLOEXEC)
        else:
            file = os.memfd_create("farrier-model", os.MFD_CLOEXEC)
        try:
            if self._model.path is None:
                write_all(file, self._model.message)
            yield {"path": None}, [file]
        finally:
            os.close(file)
