"""Export a PyTorch module to the bytes of a `.pt2` file, on the user's machine."""

from __future__ import annotations

import io
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.errors import UnsupportedOperatorError, UsageError
from farrier.frontends.onnx.model.file import Model

_ARGUMENTS = "farrier.compile(module, args=(example,), dynamic_shapes=…)"


def is_module(model: object) -> bool:
    """Check whether an object is a PyTorch module, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def exported(
    module: Any,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Model:
    """Export a module. Raises UsageError without example arguments, and UnsupportedOperatorError
    with the user's line if torch cannot export the module."""
    import torch

    if args is None and not kwargs:
        raise UsageError(
            "a module of PyTorch is exported with example arguments, and there are none",
            hint=_ARGUMENTS,
        )
    try:
        with torch.no_grad():
            program = torch.export.export(
                module, tuple(args or ()), dict(kwargs or {}), dynamic_shapes=dynamic_shapes
            )
        file = io.BytesIO()
        torch.export.save(program, file)
    except Exception as error:  # Errors of the export have no common base.
        raise UnsupportedOperatorError(
            f"torch.export cannot export {type(module).__name__}{_where(error)}: {_first(error)}",
            hint="torch.export.draft_export(module, args) tells more; call eval() on the module, "
            "and avoid branches on values",
        ) from error
    return Model.of_bytes(file.getvalue(), type(module).__name__)


def _where(error: BaseException) -> str:
    """Return the last line outside of installed packages in the traceback of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    stated = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    places = [(frame.filename, str(frame.lineno)) for frame in frames] + stated
    own = [place for place in places if not re.search(r"site-packages|farrier/|^<", place[0])]
    if not own:
        return ""
    file, line = own[-1]
    return f" at {file.rpartition('/')[2]}:{line}"


def _first(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
