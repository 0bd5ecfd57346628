"""The settings of passes on graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from farrier.options import MAX_LAYER_ERROR
from farrier.options.precision import Precision
from farrier.passes.algorithm import Algorithm, Layer
from farrier.targets import Target


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The machine and the number of threads that a graph is made for, and what its user allows.

    `max_layer_error` and `precision` are as in `CompileOptions`. `algorithms` are those of
    convolutions for which the best is known from measuring, by the key of the layer. `beside_hot`
    is the code for all sizes where hot ones have code of their own: less of it is worth more than
    the last percents of its speed.
    """

    target: Target
    threads: int
    max_layer_error: float = MAX_LAYER_ERROR
    precision: Precision = Precision.F32
    algorithms: Mapping[str, Algorithm] = dataclasses.field(default_factory=dict)
    beside_hot: bool = False

    def algorithm_of(self, layer: Layer) -> Algorithm:
        """Return the measured best algorithm of a layer where that is allowed, else the fastest by
        the model of the machine."""
        measured = self.algorithms.get(layer.key)
        return measured if measured in layer.allowed else layer.fastest
