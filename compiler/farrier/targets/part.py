"""The part of an artifact's manifest that belongs to one backend, and is read by that backend
alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from farrier.errors import ArtifactError
from farrier_device import codec


class ManifestPart:
    """The base class of dataclasses that are a backend's part of the manifest. `whose` names the
    machines that the part is for, in error messages."""

    __slots__ = ()

    whose: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        part: dict[str, Any] = codec.encode(self)
        return part

    @classmethod
    def of_json(cls, part: Mapping[str, Any]) -> Self:
        """Return the part that a JSON object describes. Raises ArtifactError for a missing,
        malformed or unknown field."""
        try:
            unknown = codec.Unknown.REFUSED_UNLESS_EMPTY
            return codec.decode(cls, dict(part), unknown=unknown, name="backend")
        except ValueError as error:
            raise ArtifactError(
                f"the manifest's part for {cls.whose} is damaged, or of a newer Farrier: {error}",
                hint="compile the model again, or run it with the Farrier that made it",
            ) from error
