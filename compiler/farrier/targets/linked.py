"""A linked model: native code that is not yet verified or packaged."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from farrier.artifact.calls import CallRecord
from farrier.artifact.code import CodeObject, ModelCode
from farrier.artifact.params import PackedParams
from farrier.ir.dim import Extent, Symbol, typical

if TYPE_CHECKING:
    from farrier.partition.plan_memory import MemoryPlan
    from farrier.partition.program import DriverProgram


@dataclasses.dataclass(frozen=True, slots=True)
class LinkedModel:
    """A model as linked code objects. `bytes_of` maps the key of each constant to the number of
    bytes that the constant occupies in the packed parameters."""

    code: ModelCode
    params: PackedParams
    bytes_of: Mapping[Hashable, int]
    # The sizes that the caller passes, followed by the capacities (limits of data-dependent sizes).
    dims: tuple[Symbol, ...]
    capacities: tuple[Symbol, ...]
    counted: tuple[Symbol, ...]
    checks: tuple[Check, ...]
    sizes: tuple[int, ...]
    # The general plan for all sizes of the dims, followed by one for each set of hot sizes.
    memories: tuple[MemoryPlan, ...]
    calls: tuple[CallRecord, ...]  # The calls in the order of execution.
    # The entry point for callers, followed by the general one if there is code for hot sizes.
    entries: tuple[str, ...]
    # An interpreted driver program; None if the driver is native code.
    driver: DriverProgram | None = None
    # The library with the entry points, unless `code` contains them.
    library: CodeObject | None = None

    @property
    def measured(self) -> tuple[CodeObject, ...]:
        """The code objects that a device loads in order to call and time the entry points."""
        return (self.library,) if self.library else self.code.objects

    @property
    def memory(self) -> MemoryPlan:
        """The memory plan of the general code, which is valid for all values of the dims."""
        return self.memories[0]

    @property
    def workspace_bytes(self) -> int:
        """The bytes of workspace that the model needs at the typical sizes."""
        return max(typical(memory.workspace_bytes) for memory in self.memories)


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """A check that the entry point makes at run time. `origin` is the ONNX node that requires it.

    The check compares a size that the model computes with `most`. If `is_exact` is false, the size
    must not exceed `most`. If it is true, the size must have the relation to `most` that an
    operator requires, which usually is equality. `needs` describes the required size in words, for
    the error message.

    If `reason` is not empty, a failure means that the run has entered a branch of the model that
    could not be compiled, for this reason. In this case there may be no size to compare, and the
    check fails whenever the run reaches it.
    """

    most: Extent  # An extent over `Plan.dims`.
    is_exact: bool
    origin: str
    reason: str = ""
    needs: str = ""

    @property
    def is_final(self) -> bool:
        """Return True if the check would also fail with larger capacities (the upper limits of
        data-dependent sizes)."""
        return self.is_exact or bool(self.reason or self.needs)
