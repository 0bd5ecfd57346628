"""The rules that convert operations to nodes. Importing this package registers them in the
table."""

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
