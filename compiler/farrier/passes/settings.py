"""The settings of graph passes: target, threads, and the choices of the user."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from farrier.options import MAX_LAYER_ERROR
from farrier.options.precision import Precision
from farrier.passes.algorithm import Algorithm, Layer
from farrier.targets import Target


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The machine and the number of threads for which a graph is compiled, and the options of the
    user.

    `max_layer_error` and `precision` are as in `CompileOptions`. `algorithms` maps the key of a
    layer to the convolution algorithm that was measured to be fastest. `beside_hot` is true for the
    general code of a model that also has specialized code for its most frequent (hot) sizes: the
    general code is then optimized for small size rather than for the last percents of speed.
    `stack_bytes` is the memory that the values of the model must leave free for its stack; 0 if the
    stack is not measured yet.
    """

    target: Target
    threads: int
    max_layer_error: float = MAX_LAYER_ERROR
    precision: Precision = Precision.F32
    algorithms: Mapping[str, Algorithm] = dataclasses.field(default_factory=dict)
    beside_hot: bool = False
    stack_bytes: int = 0

    def algorithm_of(self, layer: Layer) -> Algorithm:
        """Return the best algorithm of a layer by measurement if it is allowed, else the fastest
        one by the machine model."""
        measured = self.algorithms.get(layer.key)
        return measured if measured in layer.allowed else layer.fastest
