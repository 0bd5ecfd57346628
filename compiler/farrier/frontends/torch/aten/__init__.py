"""The rules that convert ATen operators to nodes; one module per family. Importing the package
fills the table."""

from farrier.frontends.torch.aten import (
    assertions,
    attention,
    convolution,
    creation,
    elementwise,
    indexing,
    linear,
    movement,
    normalization,
    pooling,
    recurrent,
    reduction,
    resizing,
    sizes,
    transformer,
)

__all__ = [
    "assertions",
    "attention",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "linear",
    "movement",
    "normalization",
    "pooling",
    "recurrent",
    "reduction",
    "resizing",
    "sizes",
    "transformer",
]
