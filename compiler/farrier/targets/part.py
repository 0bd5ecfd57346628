"""A backend's part of the manifest, which that backend alone reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from farrier.errors import ArtifactError
from farrier_device import codec


class ManifestPart:
    """A dataclass as a part of the manifest; `whose` names the machines that it is for."""

    __slots__ = ()

    whose: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        part: dict[str, Any] = codec.encode(self)
        return part

    @classmethod
    def of_json(cls, part: Mapping[str, Any]) -> Self:
        """Raise ArtifactError for a field that is missing, malformed or new to this version."""
        try:
            unknown = codec.Unknown.REFUSED_UNLESS_EMPTY
            return codec.decode(cls, dict(part), unknown=unknown, name="backend")
        except ValueError as error:
            raise ArtifactError(
                f"the manifest's part for {cls.whose} is damaged, or of a newer Farrier: {error}",
                hint="compile the model again, or run it with the Farrier that made it",
            ) from error
