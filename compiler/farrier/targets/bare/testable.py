"""Code as it is handed to an emulated board: an object behind a line of JSON that describes it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from farrier.targets.bare.part import BarePart


@dataclasses.dataclass(frozen=True, slots=True)
class Testable:
    """A model's object with what calls it; its parameters come with each call."""

    # By its name, pytest would collect it as a class of tests.
    __test__ = False

    part: BarePart
    content: bytes

    def to_bytes(self) -> bytes:
        return json.dumps(self.part.to_json()).encode() + b"\n" + self.content

    @classmethod
    def of_bytes(cls, data: bytes) -> Testable:
        part, _, content = data.partition(b"\n")
        return cls(BarePart.of_json(json.loads(part)), content)


@dataclasses.dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels that are measured by themselves."""

    core: str
    content: bytes

    def testable(self, symbol: str, sizes: Sequence[int]) -> Testable:
        """Return a kernel as a model: arguments of `sizes` bytes are read, and left as they are
        then."""
        return Testable(BarePart(self.core, symbol, tuple(sizes), (), 0, 0), self.content)

    def to_bytes(self) -> bytes:
        return json.dumps({"core": self.core}).encode() + b"\n" + self.content

    @classmethod
    def of_bytes(cls, data: bytes) -> Kernels:
        described, _, content = data.partition(b"\n")
        return cls(json.loads(described)["core"], content)
