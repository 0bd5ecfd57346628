"""A module of StableHLO as dataclasses."""

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
    """The type of a tensor; None stands for a size that is known only when the model runs."""

    element: str
    sizes: tuple[int | None, ...]

    @property
    def dtype(self) -> DType | None:
        """The element type, or None if Farrier does not have it."""
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
    """A type that is not a tensor's, as text."""

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
    """A constant: its elements, or one element that all have."""

    elements: npt.NDArray[Any]  # The shape is () if all elements are the same.
    type: TensorType

    @property
    def is_splat(self) -> bool:
        """Return whether all elements are the same."""
        return self.elements.ndim == 0 and self.type.rank > 0

    def ints(self) -> list[int]:
        """Return the elements in order."""
        sizes = [size or 0 for size in self.type.sizes]
        return [int(value) for value in np.broadcast_to(self.elements, sizes).ravel()]


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """A reference to a function, by its name."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Raw:
    """An attribute of a dialect, as text: `#stablehlo.conv<…>` has the name `stablehlo.conv`."""

    name: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """An operation. `line` is the user's line of Python that it comes from, "" if unknown."""

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
    """The operations of a region or function, of which the last one returns."""

    arguments: tuple[tuple[str, Type, str], ...]  # A value, its type, and the user's name for it.
    operations: tuple[Operation, ...]

    @property
    def returned(self) -> tuple[str, ...]:
        """The values that the block returns."""
        return self.operations[-1].operands if self.operations else ()

    def walk(self) -> Iterator[Operation]:
        """Yield the operations, and those in their regions."""
        for operation in self.operations:
            yield operation
            for region in operation.regions:
                yield from region.walk()


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """A function; `argument_attrs` and `result_attrs` are dictionaries, one for each."""

    name: str
    body: Block
    result_types: tuple[Type, ...]
    argument_attrs: Sequence[Mapping[str, Any]] = ()
    result_attrs: Sequence[Mapping[str, Any]] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """The functions of a module, of which `main` is the model."""

    functions: Mapping[str, Function]

    @property
    def main(self) -> Function:
        """The function that is the model."""
        return self.functions["main"]
