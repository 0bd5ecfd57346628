"""Check that a planned program fits the machine: the sizes of its memories, and the limits on
parallel threads. Symbolic sizes are checked at their typical values; a device rejects larger ones
at run time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from farrier.errors import MemoryLimitError
from farrier.ir.dim import product, typical
from farrier.partition.model_plan import ModelPlan
from farrier.partition.program import DriverProgram, Launch, steps_in
from farrier.targets.target import MemorySpace, ParallelAxis


def check_memories(plan: ModelPlan, spaces: Iterable[MemorySpace]) -> None:
    """Raise MemoryLimitError if the values in a memory space take more bytes than it has."""
    for space in spaces:
        if not space.nbytes or space.name not in plan.memories:
            continue
        uploads = (each for each in plan.addresses.uploads if each.space == space.name)
        weights = max((each.target + each.nbytes for each in uploads), default=0)
        typical_sizes = {symbol.name: symbol.typical for symbol in (*plan.dims, *plan.counted)}
        values = plan.memories[space.name].workspace_at(typical_sizes)
        if weights + values > space.nbytes:
            raise MemoryLimitError(
                f"the model takes {weights + values} bytes of the memory {space.name!r}, which has "
                f"{space.nbytes}: {weights} of weights, {values} of values at the typical sizes",
                hint="compile it for smaller sizes (--shape), or for a machine with more memory",
            )


def check_launches(program: DriverProgram, axes: Sequence[ParallelAxis]) -> None:
    """Raise MemoryLimitError if a launch has more blocks along an axis, or a block more threads,
    than the device allows."""
    limits = {axis.name: axis.limit for axis in axes}
    for step in steps_in(program.steps):
        if not isinstance(step, Launch):
            continue
        for shape in step.shapes:
            for axis, extents in ("blocks", shape.grid), ("threads", shape.block):
                count = typical(product(extents))
                if count > limits.get(axis, count):
                    raise MemoryLimitError(
                        f"{step.call.origin}: a launch takes {count} {axis} at the typical sizes, "
                        f"and the machine allows {limits[axis]}",
                        hint="compile the model for smaller sizes (--shape)",
                    )
