"""The dataclasses of a TFLite model."""

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
    """The relation real value = scale · (q - zero point), with a single scale and zero point, or
    one of each for every slice along `axis`."""

    scale: Array  # f32[1 or slices]
    zero_point: Array  # i64[1 or slices]
    axis: int = 0

    @property
    def is_per_axis(self) -> bool:
        """Check whether every slice along `axis` has its own scale."""
        return self.scale.size > 1

    @property
    def real(self) -> float:
        """The single scale of the tensor."""
        return float(self.scale[0])

    @property
    def zero(self) -> int:
        """The single zero point of the tensor."""
        return int(self.zero_point[0])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SparseDimension:
    """A level of a sparse tensor: dense, or compressed with the segment bounds and the indices of
    stored entries."""

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
    """A tensor of a subgraph. `data` are the bytes of its elements if it is a constant."""

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
        """The name of the tensor in messages."""
        return self.name or f"#{self.index}"

    @property
    def is_quantized(self) -> bool:
        """Check whether its integers represent real numbers."""
        return self.quantization is not None and self.type in (INT8, UINT8, INT16, INT4, INT32)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """An operator. Its tensors are indices into the subgraph's list; an omitted tensor is -1."""

    name: str  # The name of the schema's BuiltinOperator, or of a custom operator.
    is_custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    intermediates: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Subgraph:
    """A function of tensors; the first subgraph of a model is the main one."""

    name: str
    tensors: Sequence[Tensor]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: Sequence[Operator]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """A name for a subgraph, and names for its input and output tensors."""

    key: str
    subgraph: int
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TfliteModel:
    """A parsed TFLite file."""

    version: int
    description: str
    subgraphs: Sequence[Subgraph]
    signatures: Sequence[Signature] = ()

    @property
    def main(self) -> Subgraph:
        """The main subgraph, which a call of the model runs."""
        return self.subgraphs[0]
