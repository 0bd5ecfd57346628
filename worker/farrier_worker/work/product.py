"""What a job makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from farrier.model.file import Model


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """`name` is what to call it in messages; `write` writes it to a file, perhaps several times."""

    name: str
    write: Callable[[IO[bytes]], None]
    report: Mapping[str, Any]


def model_of(order: Mapping[str, Any]) -> Model:
    """The model that a job is about."""
    from farrier.model.file import Model

    data = {location: Path(path) for location, path in order["data"].items()}
    return Model.of_files(Path(order["message"]), data, order["name"])
