"""What an artifact's file weighs beside the model that it was made of."""

from __future__ import annotations

import dataclasses
import pathlib

from farrier.artifact.artifact import Artifact


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
    def ratio(self) -> float:
        """The file, without what Winograd adds, over the model's constants."""
        return (self.file_bytes - self.winograd_bytes) / max(self.weights_bytes, 1)

    def __str__(self) -> str:
        weights, added = self.weights_bytes / 1e6, self.winograd_bytes / 1e6
        return f"{self.file_bytes / 1e6:.2f} MB: {self.ratio:.2f} of {weights:.2f} MB weights" + (
            f" and {added:.2f} MB for Winograd" if self.winograd_bytes else ""
        )
