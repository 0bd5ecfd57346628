"""The interface that a model file declares, and its metadata.

The artifact's own interface (`artifact/manifest.py`) is that of the code: shapes in terms of
symbols, and separate tensors for the items of a sequence. The declared interface is for users who
know the original file.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from farrier_device import codec

if TYPE_CHECKING:
    import numpy.typing as npt

# The members of a sequence whose length values decide.
ITEMS, LENGTHS = "items", "lengths"

_WORDS = {"f32": "float", "f64": "double", "bf16": "bfloat16", "bool": "bool", "string": "string"}
_KINDS = {"f": "float", "i": "int", "u": "uint"}

DeclaredSize: TypeAlias = int | str | None  # A number, a dim's name, or unknown.


@dataclasses.dataclass(frozen=True, slots=True)
class DeclaredValue:
    """An input or output as the model file declares it.

    `type` is in ONNX Runtime's notation, such as `tensor(float)` or `seq(tensor(int64))`. A
    sequence, and a value of unknown rank, has no dims.

    `members` names the tensors of the artifact that hold the value: one tensor; one tensor for each
    item of a sequence; or none if the value is absent. A sequence whose length depends on the data
    is held by one tensor whose slices are the items, or by two tensors: the items concatenated
    along `axis`, and their lengths. A sequence of maps is held by one tensor with a row for each
    map and a column for each of the keys `keys`.
    """

    unknown_fields: ClassVar[codec.Unknown] = codec.Unknown.IGNORED  # No code depends on them.

    name: str
    type: str
    dims: tuple[DeclaredSize, ...]
    members: tuple[str, ...] = ()
    keys: tuple[int | str, ...] = ()
    axis: int = 0

    @property
    def is_sequence(self) -> bool:
        return self.type.startswith("seq(") and not self.keys

    def gathered(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Return the value assembled from the arrays of its members: an array, a list of arrays for
        a sequence, or None if it is absent."""
        parts = [arrays[member] for member in self.members]
        if not self.is_sequence:
            return parts[0] if parts else None
        match self.members:
            case [items] if items == f"{self.name}.{ITEMS}":
                return [parts[0][place] for place in range(len(parts[0]))]
            case [items, lengths] if lengths == f"{self.name}.{LENGTHS}":
                ends = [0, *itertools.accumulate(parts[1].tolist())]
                before = (slice(None),) * self.axis
                return [parts[0][(*before, slice(*pair))] for pair in itertools.pairwise(ends)]
        return parts

    def members_in(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the names, out of `names`, of the artifact's tensors that hold this value."""
        if not self.is_sequence:
            return (self.name,) if self.name in names else ()
        items = (f"{self.name}.{position}" for position in itertools.count())
        listed = (f"{self.name}.{part}" for part in (ITEMS, LENGTHS))
        members = tuple(itertools.takewhile(names.__contains__, items))
        return members or tuple(name for name in listed if name in names)

    def parted(self, items: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Return the tensors that represent a sequence of these items; `gathered` is the inverse.
        Raises ValueError if the members of this value cannot represent the sequence."""
        import numpy as np

        match self.members:
            case [whole] if whole == f"{self.name}.{ITEMS}":
                return [np.stack(items)]
            case [whole, lengths] if lengths == f"{self.name}.{LENGTHS}":
                sizes = [item.shape[self.axis] for item in items]
                return [np.concatenate(items, self.axis), np.array(sizes, np.int64)]
        if len(items) != len(self.members):
            raise ValueError(f"{self.name!r} has {len(items)} items, not {len(self.members)}")
        return list(items)


@dataclasses.dataclass(frozen=True, slots=True)
class Declaration:
    """The interface and metadata of a model file. `defaults` names the inputs that have a default
    value in the file, which are constants in the code."""

    unknown_fields: ClassVar[codec.Unknown] = codec.Unknown.IGNORED  # No code depends on them.

    inputs: tuple[DeclaredValue, ...]
    outputs: tuple[DeclaredValue, ...]
    defaults: tuple[str, ...] = ()
    graph_name: str = ""
    graph_description: str = ""
    producer: str = ""
    domain: str = ""
    description: str = ""
    version: int = 0
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)


def tensor_type(dtype: str) -> str:
    """Return ONNX's name of a tensor type, such as `tensor(float)` for `f32`; `string` is accepted
    too."""
    return f"tensor({_WORDS.get(dtype) or _KINDS[dtype[0]] + dtype[1:]})"
