"""What passes know besides the graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from farrier.options import MAX_LAYER_ERROR
from farrier.options.precision import Precision
from farrier.passes.algorithm import Algorithm
from farrier.targets import Target


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The machine and the number of threads that a graph is made for, and what its user allows.

    `max_layer_error` and `precision` are as in `CompileOptions`. `algorithms` are those of
    convolutions for which the best is known from measuring, by the key of the layer
    (`choose_algorithms.Layer`). `beside_hot` is the code for all sizes where hot ones have code of
    their own: less of it is worth more than the last percents of its speed.
    """

    target: Target
    threads: int
    max_layer_error: float = MAX_LAYER_ERROR
    precision: Precision = Precision.F32
    algorithms: Mapping[str, Algorithm] = dataclasses.field(default_factory=dict)
    beside_hot: bool = False
