"""A TFLite model as data: what its flatbuffer says, without its encoding."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy.typing as npt

from farrier.ir.types import DType

Array: TypeAlias = npt.NDArray[Any]

# TensorType of the schema, by number.
FLOAT32, FLOAT16, INT32, UINT8, INT64, STRING, BOOL, INT16, COMPLEX64, INT8 = range(10)
FLOAT64, COMPLEX128, UINT64, RESOURCE, VARIANT, UINT32, UINT16, INT4, BFLOAT16, INT2 = range(10, 20)
TYPE_NAMES = (
    "FLOAT32", "FLOAT16", "INT32", "UINT8", "INT64", "STRING", "BOOL", "INT16", "COMPLEX64", "INT8",
    "FLOAT64", "COMPLEX128", "UINT64", "RESOURCE", "VARIANT", "UINT32", "UINT16", "INT4",
    "BFLOAT16", "INT2",
)  # fmt: skip
DTYPES = {
    FLOAT32: DType.F32, FLOAT16: DType.F16, INT32: DType.I32, UINT8: DType.U8, INT64: DType.I64,
    BOOL: DType.BOOL, INT16: DType.I16, INT8: DType.I8, FLOAT64: DType.F64, UINT64: DType.U64,
    UINT32: DType.U32, UINT16: DType.U16, INT4: DType.I8, BFLOAT16: DType.BF16,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Quantization:
    """Real value = scale · (q - zero point). There is one of each, or one for each slice along
    `axis`."""

    scale: Array  # f32[1 or slices]
    zero_point: Array  # i64[1 or slices]
    axis: int = 0

    @property
    def is_per_axis(self) -> bool:
        """Return whether slices have scales of their own."""
        return self.scale.size > 1

    @property
    def real(self) -> float:
        """The scale of the whole tensor."""
        return float(self.scale[0])

    @property
    def zero(self) -> int:
        """The zero point of the whole tensor."""
        return int(self.zero_point[0])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SparseDimension:
    """One level of a sparse tensor: dense, or compressed with the bounds of each segment and the
    index of each of its entries."""

    dense_size: int
    segments: Array | None = None
    indices: Array | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sparsity:
    """The layout of a sparse buffer: levels in the order of traversal, blocks innermost."""

    order: tuple[int, ...]
    block_map: tuple[int, ...]
    dimensions: tuple[SparseDimension, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of a subgraph. `data` are its elements if it is a constant."""

    index: int
    name: str
    type: int
    shape: tuple[int, ...]
    signature: tuple[int, ...] = ()  # The shape with -1 for open dims; () if none is open.
    quantization: Quantization | None = None
    sparsity: Sparsity | None = None
    data: memoryview | None = None
    is_variable: bool = False

    @property
    def label(self) -> str:
        """The tensor as messages name it."""
        return self.name or f"#{self.index}"

    @property
    def is_quantized(self) -> bool:
        """Return whether its integers stand for real numbers."""
        return self.quantization is not None and self.type in (INT8, UINT8, INT16, INT4, INT32)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """An operator. Tensors go by their position in the subgraph, and omitted ones by -1."""

    name: str  # The name of the schema's BuiltinOperator, or of a custom operator.
    is_custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    intermediates: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Subgraph:
    """A function of tensors; the first of a model is its main one."""

    name: str
    tensors: Sequence[Tensor]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: Sequence[Operator]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """A name for a subgraph, and names for its inputs and outputs, by tensor."""

    key: str
    subgraph: int
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TfliteModel:
    """A whole file."""

    version: int
    description: str
    subgraphs: Sequence[Subgraph]
    signatures: Sequence[Signature] = ()

    @property
    def main(self) -> Subgraph:
        """The subgraph that a call runs."""
        return self.subgraphs[0]
