"""Read a TFLite model: flatbuffer → frozen dataclasses, with every index checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from farrier.errors import InvalidModelError
from farrier.frontends.formats import Format, format_of
from farrier.frontends.tflite.builtin import BUILTIN, CUSTOM
from farrier.frontends.tflite.flatbuffer import Flatbuffer, Table, damaged
from farrier.frontends.tflite.options import options_of
from farrier.frontends.tflite.schema import (
    DTYPES,
    INT4,
    TYPE_NAMES,
    Operator,
    Quantization,
    Signature,
    SparseDimension,
    Sparsity,
    Subgraph,
    Tensor,
    TfliteModel,
)
from farrier.options.shapes import MAX_EXTENT

VERSION = 3
_PLACEHOLDER = 127  # The older field of one byte holds this for greater numbers.
_MOST_RANK = 8  # The kernels of TFLite take ranks up to 6.
_SEGMENTS = {1: "i", 2: "H", 3: "B"}  # SparseIndexVector: the elements of its member


def read_model(data: bytes | memoryview) -> TfliteModel:
    """Parse a TFLite file. Raises InvalidModelError for bytes of another format, or damaged
    ones."""
    view = memoryview(data).toreadonly()
    if format_of(view) is not Format.TFLITE:
        raise InvalidModelError("the file is not a TFLite model: it lacks the identifier TFL3")
    root = Flatbuffer(view).root()
    version = root.scalar(0, "I")
    if version != VERSION:
        raise InvalidModelError(
            f"the TFLite model has schema version {version}, and Farrier reads version {VERSION}",
            hint="convert the model again with a converter of 2018 or later",
        )
    codes = [_code(table) for table in root.tables(1)]
    buffers = [_contents(table, view) for table in root.tables(4)]
    graphs = [_subgraph(table, codes, buffers) for table in root.tables(2)]
    if not graphs:
        raise damaged("it has no subgraph")
    signatures = [_signature(table, graphs) for table in root.tables(7)]
    return TfliteModel(version, root.text(3), tuple(graphs), tuple(signatures))


def _code(table: Table) -> tuple[str, bool]:
    """Return the name of an operator, and whether it is a custom one."""
    short, number = table.scalar(0, "b"), table.scalar(3, "i")
    number = max(number, short) if short != _PLACEHOLDER else number
    if number == CUSTOM:
        return table.text(1) or "CUSTOM", True
    if not 0 <= number < len(BUILTIN):
        return f"builtin operator {number}", False
    return BUILTIN[number], False


def _contents(table: Table, view: memoryview) -> memoryview | None:
    """Return the bytes of a buffer, which are in its table or, in files beyond 2 GiB, after the
    flatbuffer."""
    data = table.bytes(0)
    if data is not None:
        return data if len(data) else None
    offset, size = table.scalar(1, "Q"), table.scalar(2, "Q")
    if offset <= 1 or not size:  # Writers leave 0 or 1 for a buffer that they did not use.
        return None
    if offset + size > len(view):
        raise damaged(f"a buffer ends at byte {offset + size} of {len(view)}")
    return view[offset : offset + size]


def _subgraph(
    table: Table, codes: Sequence[tuple[str, bool]], buffers: Sequence[memoryview | None]
) -> Subgraph:
    tensors = [_tensor(each, index, buffers) for index, each in enumerate(table.tables(0))]
    inputs, outputs = (_indices(table, field, len(tensors), 0) for field in (1, 2))
    operators = tuple(_operator(each, codes, len(tensors)) for each in table.tables(3))
    return Subgraph(table.text(4), tuple(tensors), inputs, outputs, operators)


def _indices(table: Table, field: int, count: int, least: int) -> tuple[int, ...]:
    """Return a vector of tensor indices, checked to be in [least, count)."""
    indices = table.numbers(field, "i")
    if indices.size and not (least <= indices.min() and indices.max() < count):
        raise damaged(f"it names a tensor {int(indices.max())} of {count}")
    return tuple(indices.tolist())


def _operator(table: Table, codes: Sequence[tuple[str, bool]], count: int) -> Operator:
    position = table.scalar(0, "I")
    if position >= len(codes):
        raise damaged(f"an operator has the code {position} of {len(codes)}")
    name, is_custom = codes[position]
    return Operator(
        name,
        is_custom,
        _indices(table, 1, count, -1),
        _indices(table, 2, count, -1),
        options_of(name, table.scalar(3, "B"), table.table(4)),
        _indices(table, 8, count, -1),
    )


def _tensor(table: Table, index: int, buffers: Sequence[memoryview | None]) -> Tensor:
    name, type_, position = table.text(3), table.scalar(1, "b"), table.scalar(2, "I")
    label = repr(name or f"#{index}")
    if not 0 <= type_ < len(TYPE_NAMES):
        raise damaged(f"the tensor {label} has the unknown type {type_}")
    if position >= len(buffers):
        raise damaged(f"the tensor {label} has the buffer {position} of {len(buffers)}")
    shape = _shape(table, 0, 0, label)
    signature = _shape(table, 7, -1, label)
    if signature and len(signature) != len(shape):
        raise damaged(f"the tensor {label} has the shape {shape} and the signature {signature}")
    sparsity = table.table(6)
    data = buffers[position] if position else None  # Buffer 0 is that of tensors without any.
    tensor = Tensor(
        index,
        name,
        type_,
        shape,
        signature if -1 in signature else (),
        _quantization(table.table(4), shape, label),
        None if sparsity is None else _sparsity(sparsity, label),
        data,
        table.scalar(5, "?", False),
    )
    _check_bytes(tensor)
    return tensor


def _shape(table: Table, field: int, least: int, label: str) -> tuple[int, ...]:
    sizes = tuple(table.numbers(field, "i").tolist())
    if len(sizes) > _MOST_RANK or any(not least <= size <= MAX_EXTENT for size in sizes):
        raise damaged(f"the tensor {label} has the shape {sizes[: _MOST_RANK + 1]}")
    return sizes


def _check_bytes(tensor: Tensor) -> None:
    """Raise InvalidModelError unless a dense constant has the number of bytes that its shape and
    type require."""
    if tensor.data is None or tensor.sparsity is not None or tensor.type not in DTYPES:
        return
    count = 1
    for size in tensor.shape:
        count *= size
    width = 1 if tensor.type == INT4 else DTYPES[tensor.type].nbytes
    needed = (count + 1) // 2 if tensor.type == INT4 else count * width
    if needed > len(tensor.data):
        raise damaged(
            f"the tensor {tensor.label!r} of shape {tensor.shape} takes {needed} bytes, and its "
            f"buffer has {len(tensor.data)}"
        )


def _quantization(table: Table | None, shape: tuple[int, ...], label: str) -> Quantization | None:
    """Return the quantization of a tensor, or None if there is none: a table without scales only
    has statistics from training."""
    if table is None:
        return None
    scale, zero = table.numbers(2, "f"), table.numbers(3, "q")
    if not scale.any():  # Converters write zeros for a tensor that is not quantized.
        return None
    if not zero.size:
        zero = np.zeros(scale.size, np.int64)
    axis = table.scalar(6, "i")
    if zero.size not in (1, scale.size) or (scale.size > 1 and not 0 <= axis < len(shape)):
        raise damaged(
            f"the tensor {label} has {scale.size} scales and {zero.size} zero points along axis "
            f"{axis} of {shape}"
        )
    if scale.size > 1 and scale.size != shape[axis]:
        axes = [place for place, size in enumerate(shape) if size == scale.size]
        if len(axes) != 1:
            raise damaged(f"the tensor {label} has {scale.size} scales for {shape}")
        axis = axes[0]  # Older converters wrote a wrong axis, which TFLite's kernels do not read.
    if not np.isfinite(scale).all() or (scale < 0).any():
        raise damaged(f"the tensor {label} has a scale that is not a positive number")
    zero = np.broadcast_to(zero, scale.shape)
    return Quantization(scale, zero, axis)


def _sparsity(table: Table, label: str) -> Sparsity:
    levels = []
    for level in table.tables(2):
        if not level.scalar(0, "b"):
            levels.append(SparseDimension(level.scalar(1, "i")))
            continue
        segments = _index_vector(level, 2, label)
        levels.append(SparseDimension(0, segments, _index_vector(level, 4, label)))
    order, blocks = (tuple(table.numbers(field, "i").tolist()) for field in (0, 1))
    return Sparsity(order, blocks, tuple(levels))


def _index_vector(table: Table, field: int, label: str) -> Any:
    """Return a vector of indices of a sparse tensor: a union whose type is in the preceding
    field."""
    kind, vector = table.scalar(field, "B"), table.table(field + 1)
    if kind not in _SEGMENTS or vector is None:
        raise damaged(f"the sparse tensor {label} lacks indices")
    return vector.numbers(0, _SEGMENTS[kind]).astype(np.int64)


def _signature(table: Table, graphs: Sequence[Subgraph]) -> Signature:
    position = table.scalar(4, "I")
    if position >= len(graphs):
        raise damaged(f"a signature has the subgraph {position} of {len(graphs)}")
    graph = graphs[position]
    inputs, outputs = (_named(table, field, len(graph.tensors)) for field in (0, 1))
    return Signature(table.text(2), position, inputs, outputs)


def _named(table: Table, field: int, count: int) -> Mapping[int, str]:
    names: dict[int, str] = {}
    for pair in table.tables(field):
        index = pair.scalar(1, "I")
        if index >= count:
            raise damaged(f"a signature names a tensor {index} of {count}")
        names[index] = pair.text(0)
    return names
