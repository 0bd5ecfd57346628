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
    """One model as code objects; `bytes_of` maps each constant's identity to its bytes in the
    parameters."""

    code: ModelCode
    params: PackedParams
    bytes_of: Mapping[Hashable, int]
    # The sizes that the caller passes; then capacities, the last of these.
    dims: tuple[Symbol, ...]
    capacities: tuple[Symbol, ...]
    counted: tuple[Symbol, ...]
    checks: tuple[Check, ...]
    sizes: tuple[int, ...]
    # The plan for all sizes of the dims, followed by one for each hot size.
    memories: tuple[MemoryPlan, ...]
    calls: tuple[CallRecord, ...]  # The calls in the order of execution.
    # The entry that a caller calls; then, with hot code, the one for all sizes.
    entries: tuple[str, ...]
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

    most: Extent  # An extent over `Plan.dims`.
    is_exact: bool
    origin: str
    reason: str = ""
    needs: str = ""

    @property
    def is_final(self) -> bool:
        """Check whether it fails for capacities of any size."""
        return self.is_exact or bool(self.reason or self.needs)
