"""The matrix unit in the form of a CPU target, so that CPU graph passes can use it: a dot product
of bytes, and channel blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from farrier.targets.cpu.target import CpuTarget
from farrier.targets.dae.description import Accelerator

if TYPE_CHECKING:
    from farrier.intrinsics import Dot
    from farrier.llvm import LLVMMachine
    from farrier.targets.cpu.backend import CpuBackend
    from farrier.targets.llvm.builder import Instructions

_FEATURE = "matrix"


@dataclasses.dataclass(frozen=True, slots=True)
class UnitTarget(CpuTarget):
    """A stand-in target for graph passes only. No kernel is scheduled for it."""

    accelerator: Accelerator | None = None

    @classmethod
    def of(cls, accelerator: Accelerator) -> UnitTarget:
        memory = accelerator.memory
        return cls(
            triple="dae-unknown-unknown",
            cpu=accelerator.name,
            features=(_FEATURE,),
            vector_bits=32 * accelerator.matrix.outer,
            registers=32,
            cores=1,
            l1_bytes=memory.input,
            l2_bytes=memory.weight,
            l3_bytes=memory.sum,
            accelerator=accelerator,
        )

    @property
    def backend(self) -> CpuBackend:
        return self._none()

    @property
    def figures(self) -> Mapping[str, Any]:
        return {}

    @property
    def llvm(self) -> LLVMMachine:
        return self._none()

    @property
    def instructions(self) -> Instructions:
        return self._none()

    @property
    def support(self) -> str:
        return self._none()

    def _none(self) -> NoReturn:
        raise AssertionError("no kernel is compiled for the stand-in of a matrix unit")

    @property
    def required_features(self) -> frozenset[str]:
        return frozenset(self.features)

    @property
    def dots(self) -> Sequence[Dot]:
        from farrier.intrinsics import Dot
        from farrier.ir.types import DType

        assert self.accelerator is not None
        matrix = self.accelerator.matrix
        return (
            Dot(
                name="matrix_unit",
                group=1,
                left=matrix.input,
                right=matrix.weight,
                total=DType.I32,
                lanes=(matrix.outer,),
                feature=_FEATURE,
                emit=lambda *_: self._none(),
            ),
        )
