"""A model as Python code: declared inputs, and a function that builds the graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from farrier.frontends.builder.builder import Builder
from farrier.frontends.builder.model import ImportedModel
from farrier.frontends.builder.settle import built
from farrier.frontends.builder.signature import Declared, resolve
from farrier.options.shapes import GivenShape, Hot


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A model that `farrier.compile` accepts in place of an ONNX model.

    `build` adds the nodes of the model to a builder. It runs several times, once or more for each
    set of sizes with specialized code, and must add the same nodes each time.
    """

    inputs: Sequence[Declared]
    build: Callable[[Builder], object]
    name: str = "model"

    def imported(
        self,
        shapes: Mapping[str, GivenShape] = MappingProxyType({}),
        hot: Sequence[Hot] = (),
        typical: Hot = MappingProxyType({}),
    ) -> ImportedModel:
        """Return the typed graph. `shapes` fixes dims that the inputs leave open, by input name;
        `hot` and `typical` are sizes of dims that stay open, by name of dim. Raises FarrierError.
        """
        return built(resolve(self.inputs, shapes, hot, typical), self.build)
