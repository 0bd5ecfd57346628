"""The frontend for StableHLO: MLIR in its generic form → dataclasses → the builder.

The text comes from strangers, and is all that is read. `conversion/jax`
writes it for what `jax.export` exports.
"""

from farrier.frontends.stablehlo.document import inspection
from farrier.frontends.stablehlo.importer import import_model

__all__ = ["import_model", "inspection"]
