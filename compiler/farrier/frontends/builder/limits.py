"""The limits on the models that frontends build: numbers of nodes, axes and bytes."""

from __future__ import annotations

import math

from farrier.errors import InvalidModelError
from farrier.ir.dim import typical
from farrier.ir.types import TensorType

# One value, computed or constant, or as much as the model's own files have. What lies in a file of
# its own is as large as that file.
MAX_TENSOR_BYTES = 1 << 31
MAX_CONSTANT_BYTES = 1 << 31  # The limit for all constants outside of files.
MAX_MADE_BYTES = 1 << 29  # The limit for a constant that a rewrite defines.
MAX_FOLDED_BYTES = 1 << 20  # The limit for a node's results; passes fold larger ones.
MAX_RANK = 64  # The limit is numpy's.
MAX_NODES = 200_000  # Loops are unrolled and functions inlined.
MAX_UNROLLED = 1024  # Iterations of a loop whose shapes change.


class MisfitError(InvalidModelError):
    """Error: a node's operands are invalid for it, or a tensor is too large. In a branch, it is
    raised only by a run that executes the node."""


def check_size(kind: TensorType, what: str, most: int = MAX_TENSOR_BYTES) -> None:
    """Raise MisfitError if a type has too many axes, more than `most` bytes, or a negative
    extent."""
    if kind.rank > MAX_RANK:
        raise MisfitError(f"{what} has {kind.rank} axes, and Farrier reads {MAX_RANK} at most")
    extents = [typical(extent) for extent in kind.shape]
    if min(extents, default=0) < 0:
        raise MisfitError(f"{what} has the shape {kind.shape}")
    # An extent next to an extent of 0 counts as well: numpy refuses what it could not address.
    nbytes = math.prod(max(extent, 1) for extent in extents) * kind.dtype.nbytes
    if nbytes > most:
        raise MisfitError(
            f"{what} of {kind.dtype} has the shape {kind.shape}, which takes {nbytes} bytes, more "
            f"than {most / (1 << 30):.3g} GiB"
        )
