"""The inputs that an ONNX message declares."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import onnx

from farrier.errors import InvalidModelError, UsageError
from farrier.frontends.builder.signature import Declared, DeclaredDim
from farrier.frontends.onnx.importer.ranks import rank_of
from farrier.frontends.onnx.importer.raw import initialized
from farrier.frontends.onnx.importer.tensors import dtype_of
from farrier.ir.types import DType

_ANONYMOUS = ("", "?", "-1", "None")  # exporters write these for "unknown", and mean no equality
_OVERRIDABLE = 4  # the first IR version in which an input's initializer is a default of it


def declared_inputs(
    graph: onnx.GraphProto, overridden: Collection[str] = (), given: Collection[str] = ()
) -> list[Declared]:
    """The inputs that a caller must give: those without an initializer, and those whose initializer
    is `overridden`. A rank that the model does not declare, and no shape that is `given` for the
    input, is that which its readers take."""
    constants = set(initialized(graph)).difference(overridden)
    inputs = [_declare(info) for info in graph.input if info.name not in constants]
    for position, one in enumerate(inputs):
        if one.dims is None and one.name not in given and not one.is_strings:
            rank = rank_of(graph, one.name)
            if rank is not None:
                inputs[position] = dataclasses.replace(one, dims=("?",) * rank)
    return inputs


def overridden(model: onnx.ModelProto, shapes: Collection[str]) -> set[str]:
    """The initializers that are inputs because the user gives shapes for them. Raises UsageError
    before IR version 4, when all initializers were inputs, and none could be overridden."""
    names = set(initialized(model.graph)) & {info.name for info in model.graph.input}
    names &= set(shapes)
    if names and model.ir_version < _OVERRIDABLE:
        raise UsageError(
            f"{min(names)!r} is a constant: in a model of IR version {model.ir_version} no "
            "initializer can be overridden",
            hint=f"set its ir_version to {_OVERRIDABLE} or more, or remove the initializer",
        )
    return names


def _declare(info: onnx.ValueInfoProto) -> Declared:
    """Raises InvalidModelError for what is not a tensor, and for what has no name."""
    if not info.name:
        raise InvalidModelError("an input has no name")
    if info.type.WhichOneof("value") != "tensor_type":
        kind = info.type.WhichOneof("value") or "without a type"
        raise InvalidModelError(f"input {info.name!r} is no tensor ({kind.removesuffix('_type')})")
    tensor = info.type.tensor_type
    is_strings = tensor.elem_type == onnx.TensorProto.STRING
    dtype = DType.U32 if is_strings else dtype_of(tensor.elem_type, f"input {info.name!r}")
    dims = tuple(map(_dim, tensor.shape.dim)) if tensor.HasField("shape") else None
    return Declared(info.name, dtype, dims, is_strings)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> DeclaredDim:
    if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
        return int(dim.dim_value)
    return "?" if dim.dim_param in _ANONYMOUS else str(dim.dim_param)
