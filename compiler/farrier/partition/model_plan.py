"""The plan of a model: its driver program, with the address of every value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Self

from farrier.artifact.calls import CallRecord
from farrier.artifact.params import ParamArena
from farrier.ir.dim import Symbol, typical
from farrier.partition.addresses import Addresses, Addressing, plan_spaces
from farrier.partition.executable import executable
from farrier.partition.plan_memory import MemoryPlan
from farrier.partition.program import DriverProgram
from farrier.targets.interface import Interface
from farrier.targets.linked import Check
from farrier_device.measurement import Launch
from farrier_device.program import HOST, Program


@dataclasses.dataclass(frozen=True)
class ModelPlan:
    """A driver program with the addresses of its values.

    `inputs` and `outputs` have the sizes of the inputs and outputs in bytes, at the typical sizes.
    `sizes` has the typical values of all sizes in the order of the entry point's argument: the
    dims, the data-dependent sizes, and the sizes to which the records in `calls` point.
    """

    program: DriverProgram
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    arena: ParamArena
    memories: Mapping[str, MemoryPlan]  # Memory plans by space.
    addresses: Addresses
    max_threads: int
    calls: tuple[CallRecord, ...]
    sizes: tuple[int, ...]
    lends: ClassVar[bool] = False  # Inputs and outputs lie in the workspace, as `plan_memory` says.

    @classmethod
    def of(
        cls,
        program: DriverProgram,
        kernels: Mapping[str, Interface],
        threads: int,
        beside: ModelPlan | None = None,
        alignments: Mapping[str, int] = MappingProxyType({}),
    ) -> Self:
        """Assign memory to the values of a program, for a run with `threads` threads.

        `kernels` maps task keys to interfaces; constants and sizes are placed after those of the
        plan `beside`, if there is one. `alignments` maps spaces to alignments in bytes, where these
        exceed 64.
        """
        memories = plan_spaces(program, kernels, threads, alignments, lends=cls.lends)
        if beside is None:
            typicals = [symbol.typical for symbol in (*program.dims, *program.counted)]
            # The size that fails a check: of this program, or of a program for sizes of its dims.
            typicals += [0] if program.has_checks or program.dims else []
            arena, sizes = ParamArena(), tuple(typicals)
        else:
            arena, sizes = beside.arena, beside.sizes
        addressing = Addressing(program, kernels, memories, arena, sizes, alignments)
        addresses = addressing.addresses()
        return cls(
            program=program,
            inputs=tuple(typical(value.type.nbytes) for value in program.inputs),
            outputs=tuple(typical(program.room(value)) for value in program.outputs),
            arena=addressing.arena,
            memories=memories,
            addresses=addresses,
            max_threads=threads,
            calls=tuple(addressing.records),
            sizes=tuple(addressing.sizes),
        )

    def parts(self, name: str) -> tuple[tuple[Launch, ...], ...]:
        """Return, for each of `calls` named `name`, the launches that it makes, for calls of a
        library's functions."""
        return tuple(
            (Launch(call.function, tuple((each.position, each.offset) for each in call.arguments)),)
            for call in self.calls
        )

    def executable(self) -> tuple[Program, tuple[Check, ...]]:
        """Return the program as plain data for the interpreter, and its runtime checks by
        number."""
        return executable(self.program, self.addresses, self.memories, self.params_bytes)

    @property
    def memory(self) -> MemoryPlan:
        """The memory plan of the host."""
        return self.memories[HOST]

    @property
    def dims(self) -> tuple[Symbol, ...]:
        """The sizes that the caller passes; the last of them are `capacities`."""
        return self.program.dims

    @property
    def capacities(self) -> tuple[Symbol, ...]:
        return self.program.capacities

    @property
    def counted(self) -> tuple[Symbol, ...]:
        """The sizes that a run returns: extents of outputs that the data decides."""
        return self.program.counted

    @property
    def params_bytes(self) -> int:
        return self.arena.nbytes

    @property
    def symbols(self) -> set[str]:
        """The names of the kernels that the program calls."""
        return {call.function for call in self.addresses.calls.values()}

    def is_interface_compatible(self, other: ModelPlan) -> bool:
        """Check whether two plans have the same capacities and the same sizes that the data
        decides."""
        names = [[s.name for s in (*p.capacities, *p.counted)] for p in (self, other)]
        return names[0] == names[1]

    def size_arguments(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the values of the program's dims in the order in which the caller passes them;
        `sizes` maps symbols to values."""
        return tuple(sizes[dim.name] for dim in self.dims if dim not in self.capacities)
