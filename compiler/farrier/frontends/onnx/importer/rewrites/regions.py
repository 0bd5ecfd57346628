"""Bind the results of nested graphs to names."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.frontends.builder.names import Entry
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ops import Mismatch


def bind(names: Sequence[str], entries: Sequence[Entry], scope: ImportScope) -> None:
    """Bind the names of a node's outputs to the results `entries` of its nested graph, in order.
    The node may have fewer outputs than its graph. Raises Mismatch if it has more."""
    if len(entries) < len(names):
        raise Mismatch(f"it has {len(names)} outputs, and its graph returns {len(entries)}")
    for name, entry in zip(names, entries, strict=False):
        scope.bind(name, entry)
