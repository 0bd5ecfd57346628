"""The rules of operations. To import the package fills the table."""

from farrier.frontends.stablehlo.ops import (
    elementwise,
    indexing,
    movement,
    ordering,
    products,
    reductions,
    scatters,
    windows,
)

__all__ = [
    "elementwise",
    "indexing",
    "movement",
    "ordering",
    "products",
    "reductions",
    "scatters",
    "windows",
]
