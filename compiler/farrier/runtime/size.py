"""What an artifact's file weighs beside the model that it was made of."""

from __future__ import annotations

import dataclasses
import pathlib

from farrier.runtime.artifact import Artifact


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """Bytes of the file, of the model's constants, and what the weights of Winograd convolutions
    take beyond those that they were made of."""

    file_bytes: int
    weights_bytes: int
    winograd_bytes: int

    @classmethod
    def of(cls, artifact: Artifact, path: pathlib.Path) -> Size:
        """The size of an artifact that was saved to `path`."""
        told = artifact.report["size"]
        return cls(path.stat().st_size, told["weights_bytes"], told["winograd_bytes"])

    @property
    def ratio(self) -> float | None:
        """The file, without what Winograd adds, over the model's constants; None where it has
        none."""
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
    """`0.56 MB`, and what would be `0.00 MB` in bytes."""
    return f"{size / 1e6:.2f} MB" if size >= 10_000 else f"{size} bytes"
