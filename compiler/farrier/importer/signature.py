"""The model's inputs: what it declares, what the user fixes, and what remains open."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import onnx

from farrier.errors import InvalidModelError, UnresolvedShapeError, UsageError
from farrier.importer.tensors import dtype_of
from farrier.ir.types import DType, TensorType

Dim: TypeAlias = int | str  # as a model declares it
_ANONYMOUS = ("", "?", "-1", "None")  # exporters write these for "unknown", and mean no equality


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """An input as the model declares it.

    An open dim is a name or "?"; `dims` is None where not even the rank is known.
    """

    name: str
    dtype: DType
    dims: tuple[Dim, ...] | None

    def text(self) -> str:
        """`f32[1, 3, height, ?]`."""
        dims = "…" if self.dims is None else ", ".join(map(str, self.dims))
        return f"{self.dtype}[{dims}]"


def declared_inputs(graph: onnx.GraphProto) -> list[Declared]:
    """The inputs that a caller must give: those without an initializer."""
    initialized = {tensor.name for tensor in graph.initializer}
    return [_declare(info) for info in graph.input if info.name not in initialized]


def _declare(info: onnx.ValueInfoProto) -> Declared:
    """Raises InvalidModelError for what is not a tensor."""
    if info.type.WhichOneof("value") != "tensor_type":
        kind = info.type.WhichOneof("value") or "without a type"
        raise InvalidModelError(f"input {info.name!r} is no tensor ({kind.removesuffix('_type')})")
    tensor = info.type.tensor_type
    dtype = dtype_of(tensor.elem_type, f"input {info.name!r}")
    if not tensor.HasField("shape"):
        return Declared(info.name, dtype, None)
    return Declared(info.name, dtype, tuple(_dim(dim) for dim in tensor.shape.dim))


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.WhichOneof("value") == "dim_value" and dim.dim_value > 0:
        return int(dim.dim_value)
    return "?" if dim.dim_param in _ANONYMOUS else str(dim.dim_param)


def resolve(
    inputs: Sequence[Declared], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, TensorType]:
    """The type of every input, all dims fixed.

    A dim that the model names has one value wherever it occurs, so fixing one input may fix others.
    Raises UsageError for a shape that clashes with the model, UnresolvedShapeError for what stays
    open.
    """
    unknown = sorted(set(shapes) - {declared.name for declared in inputs})
    if unknown:
        raise UsageError(
            f"the model has no input {', '.join(map(repr, unknown))}",
            hint="its inputs: " + ", ".join(f"{d.name} {d.text()}" for d in inputs),
        )
    symbols: dict[str, int] = {}
    for declared in inputs:
        if declared.name in shapes:
            _check(declared, shapes[declared.name], symbols)
    fixed: dict[str, TensorType] = {}
    for declared in inputs:
        dims: Sequence[Dim] | None = shapes.get(declared.name, declared.dims)
        if dims is not None:
            known = [symbols.get(d, d) if isinstance(d, str) else d for d in dims]
            numbers = tuple(d for d in known if isinstance(d, int))
            if len(numbers) == len(known):
                fixed[declared.name] = TensorType(declared.dtype, numbers)
    if len(fixed) < len(inputs):
        raise _unresolved([d for d in inputs if d.name not in fixed], symbols)
    return fixed


def _check(declared: Declared, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    """Holds a given shape against the declared dims, and notes what named dims stand for."""
    given = f"the shape {shape} given for input {declared.name!r}"
    if min(shape, default=0) < 0:
        raise UsageError(f"{given} has a negative extent")
    if declared.dims is None:
        return
    hint = f"the model declares {declared.text()}"
    if len(shape) != len(declared.dims):
        raise UsageError(f"{given} has rank {len(shape)}, not {len(declared.dims)}", hint=hint)
    for axis, (extent, dim) in enumerate(zip(shape, declared.dims, strict=True)):
        if isinstance(dim, int) and dim != extent:
            raise UsageError(f"{given} has {extent} at axis {axis}, not {dim}", hint=hint)
        if isinstance(dim, str) and dim != "?" and symbols.setdefault(dim, extent) != extent:
            raise UsageError(
                f"{given} makes {dim!r} {extent}, and another input makes it {symbols[dim]}",
                hint=hint,
            )


def _unresolved(open_inputs: list[Declared], symbols: Mapping[str, int]) -> UnresolvedShapeError:
    templates = []
    for declared in open_inputs:
        dims = declared.dims if declared.dims is not None else ("?",)
        filled = (symbols.get(d, d) if isinstance(d, str) else d for d in dims)
        template = ",".join(str(d) if isinstance(d, int) else "?" for d in filled)
        templates.append(f"--shape {declared.name}={template}")
    described = ", ".join(f"{d.name} {d.text()}" for d in open_inputs)
    return UnresolvedShapeError(
        f"the model leaves dimensions open: {described}",
        hint=f"give each ? a number: {' '.join(templates)}",
    )
