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

# Exporters write these for unknown dims, which need not be equal.
_ANONYMOUS = ("", "?", "-1", "None")
_OVERRIDABLE = 4  # The first IR version in which an input's initializer is its default.


def declared_inputs(
    graph: onnx.GraphProto, overridden: Collection[str] = (), shaped: Collection[str] = ()
) -> list[Declared]:
    """Return the inputs that a caller must pass: the declared inputs without an initializer, and
    those whose initializer is in `overridden`. If the rank of an input is not declared, it is
    inferred from the nodes that read the input, unless the user passes a shape for it
    (`shaped`)."""
    constants = set(initialized(graph)).difference(overridden)
    inputs = [_declare(info) for info in graph.input if info.name not in constants]
    for position, declared in enumerate(inputs):
        if declared.dims is None and declared.name not in shaped and not declared.is_strings:
            rank = rank_of(graph, declared.name)
            if rank is not None:
                inputs[position] = dataclasses.replace(declared, dims=("?",) * rank)
    return inputs


def overridden(model: onnx.ModelProto, shapes: Collection[str]) -> set[str]:
    """Return the names of initializers that are treated as inputs because the user passes shapes
    for them. Raises UsageError before IR version 4, in which every initializer was listed as an
    input."""
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
    """Return the declaration of an input. Raises InvalidModelError if it is not a tensor, or has no
    name."""
    if not info.name:
        raise InvalidModelError("an input has no name")
    if info.type.WhichOneof("value") != "tensor_type":
        kind = info.type.WhichOneof("value") or "without a type"
        raise InvalidModelError(
            f"input {info.name!r} is not a tensor ({kind.removesuffix('_type')})"
        )
    tensor = info.type.tensor_type
    is_strings = tensor.elem_type == onnx.TensorProto.STRING
    dtype = DType.U32 if is_strings else dtype_of(tensor.elem_type, f"input {info.name!r}")
    dims = tuple(map(_dim, tensor.shape.dim)) if tensor.HasField("shape") else None
    return Declared(info.name, dtype, dims, is_strings)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> DeclaredDim:
    if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
        return int(dim.dim_value)
    return "?" if dim.dim_param in _ANONYMOUS else str(dim.dim_param)
