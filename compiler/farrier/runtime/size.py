"""The size of an artifact's file, compared with that of the original model."""

from __future__ import annotations

import dataclasses
import pathlib

from farrier.runtime.artifact import Artifact


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """The size of the file in bytes, the size of the model's constants, and by how many bytes the
    transformed weights of Winograd convolutions exceed the original weights."""

    file_bytes: int
    weights_bytes: int
    winograd_bytes: int

    @classmethod
    def of(cls, artifact: Artifact, path: pathlib.Path) -> Size:
        """Return the size of an artifact that was saved to `path`."""
        sizes = artifact.report["size"]
        return cls(path.stat().st_size, sizes["weights_bytes"], sizes["winograd_bytes"])

    @property
    def ratio(self) -> float | None:
        """The size of the file, without the excess of Winograd weights, divided by that of the
        model's constants; None for a model without constants."""
        if not self.weights_bytes:
            return None
        return (self.file_bytes - self.winograd_bytes) / self.weights_bytes

    def __str__(self) -> str:
        if self.ratio is None:
            return f"{_readable(self.file_bytes)}, without weights"
        weights, added = _readable(self.weights_bytes), _readable(self.winograd_bytes)
        return f"{_readable(self.file_bytes)}: {self.ratio:.2f} times the {weights} of weights" + (
            f", and {added} for Winograd" if self.winograd_bytes else ""
        )


def _readable(size: int) -> str:
    """Return a size as text in megabytes, such as `0.56 MB`; in bytes if that would be `0.00
    MB`."""
    return f"{size / 1e6:.2f} MB" if size >= 10_000 else f"{size} bytes"
