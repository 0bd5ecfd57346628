"""The dataclasses of a StableHLO module."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.ir.types import DType

_DTYPES = {
    "i1": DType.BOOL,
    **{f"i{bits}": DType[f"I{bits}"] for bits in (2, 4, 8, 16, 32, 64)},
    **{f"ui{bits}": DType[f"U{bits}"] for bits in (2, 4, 8, 16, 32, 64)},
    **{name: DType[name.upper()] for name in ("f16", "bf16", "f32", "f64")},
    "f8E4M3FN": DType.F8E4M3FN,
    "f8E4M3FNUZ": DType.F8E4M3FNUZ,
    "f8E5M2": DType.F8E5M2,
    "f8E5M2FNUZ": DType.F8E5M2FNUZ,
}


@dataclasses.dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a tensor. An extent of None is a size that is known only at run time."""

    element: str
    sizes: tuple[int | None, ...]

    @property
    def dtype(self) -> DType | None:
        """The dtype, or None if Farrier does not support the element type."""
        return _DTYPES.get(self.element)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.sizes)

    def __str__(self) -> str:
        sizes = "".join(f"{'?' if size is None else size}x" for size in self.sizes)
        return f"tensor<{sizes}{self.element}>"


@dataclasses.dataclass(frozen=True, slots=True)
class OtherType:
    """A type other than a tensor type, as text."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionType:
    """The type of a function or operation."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]


Type: TypeAlias = TensorType | OtherType | FunctionType


@dataclasses.dataclass(frozen=True, slots=True)
class Dense:
    """A constant: all of its elements, or a single element that fills the tensor."""

    elements: npt.NDArray[Any]  # A single element of shape () fills the tensor.
    type: TensorType

    @property
    def is_splat(self) -> bool:
        """Check whether a single element fills the tensor."""
        return self.elements.ndim == 0 and self.type.rank > 0

    def ints(self) -> list[int]:
        """Return the elements as a flat list of integers."""
        sizes = [size or 0 for size in self.type.sizes]
        return [int(value) for value in np.broadcast_to(self.elements, sizes).ravel()]


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """A reference to a function, by its name."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Raw:
    """An attribute of a dialect as text, such as `#stablehlo.conv<…>`, whose name is
    `stablehlo.conv`."""

    name: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """An operation of MLIR. `line` is the line of the user's Python code that it comes from, "" if
    unknown."""

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    attrs: Mapping[str, Any]
    regions: tuple[Block, ...]
    type: FunctionType
    line: str = ""

    @property
    def result_type(self) -> Type:
        """The type of the first result."""
        return self.type.results[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """The operations of a region or function; the last one returns its results."""

    arguments: tuple[tuple[str, Type, str], ...]  # A value, its type, and the user's name for it.
    operations: tuple[Operation, ...]

    @property
    def returned(self) -> tuple[str, ...]:
        """The names of the values that the block returns."""
        return self.operations[-1].operands if self.operations else ()

    def walk(self) -> Iterator[Operation]:
        """Yield the operations, including those in nested regions."""
        for operation in self.operations:
            yield operation
            for region in operation.regions:
                yield from region.walk()


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """A function. `argument_attrs` and `result_attrs` have one dictionary of attributes for each
    argument and result."""

    name: str
    body: Block
    result_types: tuple[Type, ...]
    argument_attrs: Sequence[Mapping[str, Any]] = ()
    result_attrs: Sequence[Mapping[str, Any]] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """The functions of a module by name; `main` is the model."""

    functions: Mapping[str, Function]

    @property
    def main(self) -> Function:
        """The function `main`, which computes the model."""
        return self.functions["main"]
