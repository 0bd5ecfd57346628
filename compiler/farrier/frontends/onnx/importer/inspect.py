"""Summarize a model without compiling it."""

from __future__ import annotations

import collections
import dataclasses

from farrier.frontends.builder.signature import Declared
from farrier.frontends.onnx.importer.inputs import declared_inputs
from farrier.frontends.onnx.importer.parse import opset, parse
from farrier.frontends.onnx.importer.raw import qualified_name
from farrier.frontends.onnx.model.file import Model


@dataclasses.dataclass(frozen=True, slots=True)
class ModelSummary:
    """A summary: the inputs as declared, the names of the outputs, and in `operators` the number of
    nodes of each operator."""

    opset: int
    producer: str
    inputs: tuple[Declared, ...]
    outputs: tuple[str, ...]
    operators: dict[str, int]


def inspect(data: Model | bytes) -> ModelSummary:
    """Return the summary of a model. Raises InvalidModelError for bytes that are not an ONNX
    model."""
    model, _ = parse(data)
    return ModelSummary(
        opset=opset(model),
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        inputs=tuple(declared_inputs(model.graph)),
        outputs=tuple(info.name for info in model.graph.output),
        operators=dict(collections.Counter(map(qualified_name, model.graph.node))),
    )
