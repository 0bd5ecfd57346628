"""What an ONNX file says of itself: its interface as it declares it, and its metadata.

The artifact's own interface (`artifact/manifest.py`) is what the code takes: shapes over symbols,
the tensors of a sequence one by one. This is what a reader of the file expects to be told.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

_WORDS = {"f32": "float", "f64": "double", "bf16": "bfloat16", "bool": "bool", "string": "string"}
_KINDS = {"f": "float", "i": "int", "u": "uint"}

DeclaredSize: TypeAlias = int | str | None  # a number, a dim's name, or unknown


@dataclasses.dataclass(frozen=True, slots=True)
class DeclaredValue:
    """An input or output. `type` is in ONNX Runtime's words: `tensor(float)`,
    `seq(tensor(int64))`; a sequence and a value of unknown rank have no dims. `members` names the
    tensors of the artifact that hold it: one, one an item of a sequence, or none where it is
    absent. `keys` are those of each map in a sequence of maps, which is one tensor with a row for
    each map and a column for each key."""

    name: str
    type: str
    dims: tuple[DeclaredSize, ...]
    members: tuple[str, ...] = ()
    keys: tuple[int | str, ...] = ()

    @property
    def is_sequence(self) -> bool:
        return self.type.startswith("seq(") and not self.keys


@dataclasses.dataclass(frozen=True, slots=True)
class Declaration:
    """`defaults` names the inputs that have a value in the file, which the code has as
    constants."""

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

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Declaration:
        """The declaration from JSON's types. Raises ValueError, TypeError, KeyError or
        AttributeError for anything else."""
        inputs, outputs = (tuple(map(_value, raw.pop(key))) for key in ("inputs", "outputs"))
        defaults = tuple(map(_text, raw.pop("defaults")))
        metadata = {_text(key): _text(text) for key, text in raw.pop("metadata").items()}
        version = int(raw.pop("version"))
        texts = {key: _text(text) for key, text in raw.items() if key in cls.__dataclass_fields__}
        return cls(inputs, outputs, defaults, **texts, version=version, metadata=metadata)


def _value(raw: dict[str, Any]) -> DeclaredValue:
    dims = tuple(
        size if size is None or isinstance(size, int) else _text(size) for size in raw["dims"]
    )
    keys = tuple(key if isinstance(key, int) else _text(key) for key in raw.get("keys", ()))
    members = tuple(map(_text, raw["members"]))
    return DeclaredValue(_text(raw["name"]), _text(raw["type"]), dims, members, keys)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def tensor_type(dtype: str) -> str:
    """`tensor(float)` for `f32`, as ONNX and its runtimes name an element type; also `string`."""
    return f"tensor({_WORDS.get(dtype) or _KINDS[dtype[0]] + dtype[1:]})"
