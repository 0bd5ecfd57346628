"""A model as it is handed to an emulated board: its object behind a line of JSON, its part."""

from __future__ import annotations

import dataclasses
import json

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
