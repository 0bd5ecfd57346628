"""The schedule of each kernel of a compiled model: with the model, the source of its code.

Code that runs a model does not read this; it is for showing the code (`farrier.listing`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping

from farrier.errors import ArtifactError
from farrier_device import codec


@dataclasses.dataclass(frozen=True, slots=True)
class Schedules:
    """The schedules of the model at all its sizes, or at hot ones: the best known `algorithms` of
    layers, by the layer's key, and the `decisions` of each kernel, by the task's. A missing task of
    hot sizes is computed by a kernel for all sizes."""

    algorithms: Mapping[str, str]
    decisions: Mapping[str, Mapping[str, int]]


def to_json(variants: Iterable[Schedules]) -> str:
    """Return one variant of the model a line, that for all sizes first."""
    lines = (json.dumps(codec.encode(variant)) for variant in variants)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def from_json(text: str) -> tuple[Schedules, ...]:
    """Read a table of schedules. Raises ArtifactError for other text."""
    try:
        return codec.loads(tuple[Schedules, ...], text, name="schedules")
    except ValueError as error:
        raise ArtifactError(f"the artifact's table of schedules is damaged: {error}") from error
