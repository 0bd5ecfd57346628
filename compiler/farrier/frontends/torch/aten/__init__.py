"""The rules of ATen operators, one family a file. Importing this fills the table."""

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
