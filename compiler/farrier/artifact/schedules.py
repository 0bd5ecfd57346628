"""How each kernel of a compiled model is scheduled: with the model, what its code is made from.

Nothing that runs a model reads this; it is for whoever shows the code (`farrier.listing`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping

from farrier.errors import ArtifactError
from farrier_device import codec


@dataclasses.dataclass(frozen=True, slots=True)
class Schedules:
    """Those of the model at all its sizes, or at hot ones: the `algorithms` of layers for which the
    best was known, by the layer's key, and the `decisions` of each kernel, by the task's. A task of
    hot sizes that is missing is computed by a kernel for all sizes."""

    algorithms: Mapping[str, str]
    decisions: Mapping[str, Mapping[str, int]]


def to_json(variants: Iterable[Schedules]) -> str:
    """One variant of the model a line, that for all sizes first."""
    lines = (json.dumps(codec.encode(variant)) for variant in variants)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def from_json(text: str) -> tuple[Schedules, ...]:
    """Raises ArtifactError where the text is no table of schedules."""
    try:
        return codec.loads(tuple[Schedules, ...], text, name="schedules")
    except ValueError as error:
        raise ArtifactError(f"the artifact's table of schedules is damaged: {error}") from error
