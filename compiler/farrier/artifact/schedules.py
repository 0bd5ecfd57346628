"""The schedules of the kernels of a compiled model, from which, with the model, the code can be
regenerated.

Code that runs a model does not read them; they are used to show the code (`farrier.listing`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping

from farrier.errors import ArtifactError
from farrier_device import codec
from farrier_device.codec import Natural


@dataclasses.dataclass(frozen=True, slots=True)
class Schedules:
    """The schedules of one form of the model, for all sizes or for a hot size (one with code of its
    own): the best known `algorithms` of convolutions, by layer key, and the `decisions` of each
    kernel, by task key. A task of a hot size that is missing is computed by a kernel of the form
    for all sizes. `stack_bytes` is as in `passes.settings.Settings`."""

    algorithms: Mapping[str, str]
    decisions: Mapping[str, Mapping[str, int]]
    stack_bytes: Natural = 0


def stack_bytes_of(forms: Iterable[Schedules]) -> int:
    """Return the memory, in bytes, that all forms of the model leave free for the stack."""
    return max((form.stack_bytes for form in forms), default=0)


def to_json(variants: Iterable[Schedules]) -> str:
    """Return the schedules as JSON, one form of the model per line, the form for all sizes
    first."""
    lines = (json.dumps(codec.encode(variant)) for variant in variants)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def from_json(text: str) -> tuple[Schedules, ...]:
    """Parse the table that `to_json` returns. Raises ArtifactError for any other text."""
    try:
        return codec.loads(tuple[Schedules, ...], text, name="schedules")
    except ValueError as error:
        raise ArtifactError(f"the artifact's table of schedules is damaged: {error}") from error
