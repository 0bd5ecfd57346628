"""A model as native code, before it is verified and packaged."""

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
    """One model as code objects; `bytes_of` says how many bytes of the parameters are each
    constant's, by its identity."""

    code: ModelCode
    params: PackedParams
    bytes_of: Mapping[Hashable, int]
    dims: tuple[Symbol, ...]  # what the caller says; then capacities, the last of these
    capacities: tuple[Symbol, ...]
    counted: tuple[Symbol, ...]
    checks: tuple[Check, ...]
    sizes: tuple[int, ...]
    memories: tuple[MemoryPlan, ...]  # for all sizes of the dims, and for each of the hot ones
    calls: tuple[CallRecord, ...]  # in the order of execution
    entries: tuple[str, ...]  # what a caller calls; then, beside hot code, that for all sizes
    driver: DriverProgram | None = None  # It is interpreted: no library holds it as native code.
    library: CodeObject | None = None  # It has the entries, if the objects of `code` lack them.

    @property
    def measured(self) -> tuple[CodeObject, ...]:
        """The code that a device loads to call the entries."""
        return (self.library,) if self.library else self.code.objects

    @property
    def memory(self) -> MemoryPlan:
        """The plan for all sizes."""
        return self.memories[0]

    @property
    def workspace_bytes(self) -> int:
        """The bytes of workspace at the typical sizes."""
        return max(typical(memory.workspace_bytes) for memory in self.memories)


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """A check that the entry makes at run time, and the ONNX node `origin` that it serves.

    It compares a computed size with `most`. With a `reason` it fails because the run has reached a
    branch that cannot be compiled; `needs` describes the sizes that an operator requires.
    """

    most: Extent  # over `Plan.dims`
    is_exact: bool
    origin: str
    reason: str = ""
    needs: str = ""

    @property
    def is_final(self) -> bool:
        """Return whether it fails for capacities of any size."""
        return self.is_exact or bool(self.reason or self.needs)
