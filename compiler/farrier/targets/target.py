"""The machine that code is made for: its instruction set, cores and caches."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from farrier_device import codec


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One kind of machine. Sizes are bytes; caches are per core but for the last level."""

    triple: str  # LLVM's target triple
    cpu: str  # LLVM's CPU name
    features: tuple[str, ...]  # the kernel's names of the ISA extensions beyond `cpu`'s, sorted
    vector_bits: int
    registers: int  # architectural vector registers
    cores: int  # that a model runs on: of unlike ones the big ones
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    tune: str = ""  # LLVM's name of the microarchitecture, where its costs are known
    core: str = ""  # what the kernel calls the processor: of unlike ones no timing compares

    @property
    def lanes(self) -> int:
        """f32 elements in a vector register."""
        return self.vector_bits // 32

    @property
    def arch(self) -> str:
        """As `uname -m` names it."""
        return self.triple.partition("-")[0]

    @property
    def required_features(self) -> frozenset[str]:
        """The kernel's names of every ISA extension that code may use."""
        from farrier.targets.backend import backend_of

        return backend_of(self).implied(self.cpu) | set(self.features)

    @property
    def fingerprint(self) -> str:
        """What a tuning record's timing depends on: 16 hex digits over ISA, kind of core, cores and
        caches."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; `from_dict` reads it back."""
        fields: dict[str, Any] = codec.encode(self)
        return fields

    @classmethod
    def from_dict(cls, raw: object) -> Target:
        """Raises ValueError for anything but the fields of a target."""
        return codec.decode(cls, raw, unknown=codec.Unknown.REFUSED, name="target")
