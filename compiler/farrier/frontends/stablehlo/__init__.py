"""The frontend for StableHLO: MLIR text in its generic form → dataclasses → the builder.

The text is not trusted, and no other file is read. `conversion/jax` writes it from exports of
`jax.export`.
"""

from farrier.frontends.stablehlo.document import inspection
from farrier.frontends.stablehlo.importer import import_model

__all__ = ["import_model", "inspection"]
