"""What a model is, at a glance, without compiling it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from farrier.importer.external import is_external
from farrier.importer.parse import opset, parse
from farrier.importer.raw import qualified_name
from farrier.importer.signature import Declared, declared_inputs
from farrier.importer.tensors import to_array
from farrier.model_file import Model


@dataclasses.dataclass(frozen=True, slots=True)
class ModelSummary:
    """Inputs as declared, the names of the outputs; `operators` counts nodes by operator."""

    opset: int
    producer: str
    inputs: tuple[Declared, ...]
    outputs: tuple[str, ...]
    operators: dict[str, int]


def external_initializers(model: Model) -> Iterator[tuple[str, int, npt.NDArray[Any]]]:
    """The graph's initializers that lie in data files: name, ONNX's number of the element type, and
    the elements, mapped. Raises InvalidModelError."""
    for tensor in parse(model).model.graph.initializer:
        if is_external(tensor):
            what = f"initializer {tensor.name!r}"
            yield tensor.name, tensor.data_type, to_array(tensor, what, files=model)


def inspect(data: Model | bytes) -> ModelSummary:
    """Raises InvalidModelError for bytes that are no ONNX model."""
    model, _ = parse(data)
    return ModelSummary(
        opset=opset(model),
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        inputs=tuple(declared_inputs(model.graph)),
        outputs=tuple(info.name for info in model.graph.output),
        operators=dict(collections.Counter(map(qualified_name, model.graph.node))),
    )
