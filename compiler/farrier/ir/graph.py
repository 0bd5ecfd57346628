"""The graph grammar: operators on tensors, typed, in static single assignment.

    graph    = Graph(name, [value] inputs, [constant], [node], [value] outputs)
    node     = Node(op, [value?] inputs, [value] outputs, {attr}, [graph] regions, origin)
    constant = Constant(value, content)
    content  = array | Derived(type, [constant] operands, function, key)
    value    = name : type
    attr     = extent | float | str | bool | [int] | [float] | [str]

Nodes stand in execution order. `op` is an operator of `farrier.ops`, whose names and semantics are
those of ONNX's newest opset, plus the few of Farrier's own (`Fused`: a region that becomes one
kernel; `Relayout`: the same tensor in another layout). An omitted optional input is None. `origin`
names the ONNX nodes that a node comes from; it is carried along outside equality.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from farrier.files.mapped import release
from farrier.ir.dim import Extent, Symbol, with_bounds
from farrier.ir.types import TensorType

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_PIECE = 1 << 24  # The bytes that are hashed before their pages are released.
_LARGE = 1 << 16  # The bytes from which on a constant is hashed only if that cannot be avoided.

K = TypeVar("K")
Attribute: TypeAlias = (
    Extent | float | str | bool | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
)


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A tensor in a graph; its name is an identifier, unique within the graph."""

    name: str
    type: TensorType


@dataclasses.dataclass(frozen=True)
class Derived:
    """An array that is computed from constants only when it is packed: derived weights of all
    layers together would take the memory of the model a second time.

    `function` computes the array from the operands' data, is pure and cannot fail; `key` identifies
    the function.
    """

    type: TensorType
    operands: tuple[Constant, ...]
    function: Callable[..., npt.NDArray[Any]]
    key: str

    @functools.cached_property
    def data(self) -> npt.NDArray[Any]:
        """The array, which is cached once it has been computed."""
        return self.made()

    def made(self) -> npt.NDArray[Any]:
        """Return the array: from the cache, or else newly computed without being cached."""
        if "data" in self.__dict__:
            return self.data
        array = self.function(*(operand.made() for operand in self.operands))
        array.flags.writeable = False
        return array


@dataclasses.dataclass(frozen=True)
class Constant:
    """A value known at compile time.

    `content` is the logical array, in whatever layout the value has, or a `Derived` that computes
    that array when it is needed. If elements depend on sizes that are known only when the model
    runs, the array has the dtype object, with numbers and dims as elements.
    """

    value: Value
    content: npt.NDArray[Any] | Derived

    @property
    def data(self) -> npt.NDArray[Any]:
        """The array; if it is derived, it is computed once and cached."""
        return self.content.data if isinstance(self.content, Derived) else self.content

    def made(self) -> npt.NDArray[Any]:
        """Return the array; if it is derived, it is computed without being cached."""
        return self.content.made() if isinstance(self.content, Derived) else self.content

    @property
    def sources(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the arrays from which the content is computed. For a constant that is not derived,
        it is the content itself."""
        if isinstance(self.content, Derived):
            for operand in self.content.operands:
                yield from operand.sources
        else:
            yield self.content

    @property
    def has_dims(self) -> bool:
        """Check whether elements of the array may be dims."""
        return not isinstance(self.content, Derived) and self.content.dtype == object

    @functools.cached_property
    def identity(self) -> Hashable:
        """A hashable key. Constants with equal keys have the same content, as long as they exist.

        It is computed without reading large weights. For weights in a model file, it is their
        position in the bytes of the model; for derived constants, their derivation. For all others,
        it is the digest.
        """
        import numpy as np

        content = self.content
        if isinstance(content, Derived):
            return content.type, content.key, *(operand.identity for operand in content.operands)
        owner: Any = content
        while isinstance(owner, np.ndarray) and owner.base is not None:
            owner = owner.base
        if isinstance(owner, np.ndarray) or content.nbytes < _LARGE:
            return self.digest
        address = content.__array_interface__["data"][0]
        return address, content.shape, content.strides, content.dtype.str

    @classmethod
    def named(cls, value: Value, content: npt.NDArray[Any], digest: str) -> Constant:
        """Return a constant with the given digest, so that the content need not be read to compute
        it."""
        constant = cls(value, content)
        constant.__dict__["digest"] = digest
        return constant

    @functools.cached_property
    def digest(self) -> str:
        """The sha256 of dtype, shape and bytes; for a derived constant, the sha256 of its
        derivation."""
        if isinstance(self.content, Derived):
            parts = (self.content.key, *(operand.digest for operand in self.content.operands))
            return hashlib.sha256(f"{self.value.type} {' '.join(parts)}".encode()).hexdigest()
        return digest_of(self.content)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant) or self.value != other.value:
            return False
        if self.digest == other.digest:
            return True
        is_derived = isinstance(self.content, Derived) or isinstance(other.content, Derived)
        return is_derived and self.made().tobytes() == other.made().tobytes()

    def __hash__(self) -> int:
        return hash(self.value)


def is_of_numpy(dtype: np.dtype[Any]) -> bool:
    """Check whether numpy itself defines the dtype; to numpy, the types of ml_dtypes are opaque
    bytes."""
    return dtype.kind != "V" and dtype.type.__module__ == "numpy"


def digest_of(data: npt.NDArray[Any]) -> str:
    """Return the sha256 of the dtype, shape and bytes of an array. For a dtype that numpy does not
    define, the size of an element is hashed instead of the dtype: in a .npy file such an array is
    stored as raw bytes, and must have the same digest."""
    import numpy as np

    dtype = data.dtype.str if is_of_numpy(data.dtype) else f"<V{data.itemsize}"
    content = hashlib.sha256(f"{dtype}{data.shape}".encode())
    if data.dtype == object:
        content.update(str(data.tolist()).encode())
        return content.hexdigest()
    # A constant may repeat one element without storing it; only such data is copied.
    flat = np.ascontiguousarray(data).reshape(-1).view("u1")
    for start in range(0, flat.size, _PIECE):
        piece = flat[start : start + _PIECE]
        content.update(piece.data)
        release(piece)
    return content.hexdigest()


class ConstantData(Mapping[K, "npt.NDArray[Any]"]):
    """A read-only mapping from keys of any kind to the data of constants; a derived constant is
    computed when it is read."""

    def __init__(self, constants: Mapping[K, Constant]) -> None:
        self._constants = constants

    def __getitem__(self, key: K) -> npt.NDArray[Any]:
        return self._constants[key].data

    def __contains__(self, key: object) -> bool:
        return key in self._constants

    def __iter__(self) -> Iterator[K]:
        return iter(self._constants)

    def __len__(self) -> int:
        return len(self._constants)


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: tuple[tuple[str, Attribute], ...] = ()  # Sorted by name.
    regions: tuple[Graph, ...] = ()
    origin: str = dataclasses.field(default="", compare=False)

    def attr(self, name: str, default: Any = None) -> Any:
        """Return the attribute `name`, or `default` if the node has none."""
        for key, value in self.attrs:
            if key == name:
                return value
        return default


@dataclasses.dataclass(frozen=True, slots=True)
class Graph:
    name: str
    inputs: tuple[Value, ...]
    constants: tuple[Constant, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]

    @property
    def dims(self) -> tuple[Symbol, ...]:
        """Every symbol in the types of the values, each after the symbols in its bounds."""
        ordered: dict[Symbol, None] = {}
        constants = (c.data.reshape(-1).tolist() for c in self.constants if c.has_dims)
        for extents in (*(value.type.shape for value in self.values()), *constants):
            ordered |= dict.fromkeys(with_bounds(extents))
        for node in self.nodes:
            for region in node.regions:
                ordered |= dict.fromkeys(region.dims)
        return tuple(ordered)

    @property
    def given_dims(self) -> tuple[Symbol, ...]:
        """The dims that a kernel of this region receives as arguments: all dims except those whose
        values a node of the region computes."""
        computed = {node.attr("extent") for node in self.nodes} - {None}
        return tuple(symbol for symbol in self.dims if symbol.name not in computed)

    def constant_data(self) -> ConstantData[str]:
        """Return a mapping from the name of each constant to its data."""
        return ConstantData({constant.value.name: constant for constant in self.constants})

    def producers(self) -> dict[str, Node]:
        """Return the node that defines each value, by the value's name."""
        return {out.name: node for node in self.nodes for out in node.outputs}

    def consumers(self) -> dict[str, list[Node]]:
        """Return the nodes that read each value, by the value's name; graph outputs are not
        consumers."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in {v.name: v for v in node.inputs if v is not None}.values():
                readers.setdefault(value.name, []).append(node)
        return readers

    def values(self) -> Iterator[Value]:
        """Yield every value once, in the order of definition."""
        yield from self.inputs
        yield from (constant.value for constant in self.constants)
        for node in self.nodes:
            yield from node.outputs


def attributes(**attrs: Attribute) -> tuple[tuple[str, Attribute], ...]:
    """Return attributes in canonical order, for `Node.attrs`."""
    return tuple(sorted(attrs.items()))
