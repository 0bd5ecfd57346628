"""A CPU as a target: its fields, and what its instructions and its caches can do."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farrier.errors import CompilerError
from farrier.ir.types import DType
from farrier.targets.target import Target

if TYPE_CHECKING:
    from farrier.intrinsics import Dot, TableLookup
    from farrier.llvm import LLVMMachine
    from farrier.space.machine import Machine
    from farrier.targets.cpu.backend import CpuBackend
    from farrier.targets.cpu.units.tile_unit import TileUnit
    from farrier.targets.llvm.builder import Instructions


@dataclasses.dataclass(frozen=True, slots=True)
class CpuTarget(Target):
    """One kind of CPU. Sizes are bytes; caches are per core but for the last level.

    An architecture has a subclass. Methods import the parts of the compiler, which a session that
    loads an artifact does without.
    """

    vector_bits: int
    registers: int  # Architectural vector registers.
    cores: int  # The cores that a model runs on: of unlike ones the big ones.
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    tune: str = ""  # LLVM's name of the microarchitecture, where its costs are known.
    core: str = ""  # The kernel's name of the processor: timings of unlike ones do not compare.

    @property
    @abc.abstractmethod
    def backend(self) -> CpuBackend: ...

    # -- what an architecture says of a machine

    @property
    @abc.abstractmethod
    def figures(self) -> Mapping[str, Any]:
        """The figures of `space.machine.Machine`; a missing figure is the simplest core's."""

    @property
    @abc.abstractmethod
    def llvm(self) -> LLVMMachine:
        """The machine as LLVM knows it."""

    @property
    @abc.abstractmethod
    def instructions(self) -> Instructions:
        """The instructions that the emitter may use beyond those of any machine."""

    @property
    @abc.abstractmethod
    def support(self) -> str:
        """The LLVM text of the machine's part of the support library (`codegen.support`)."""

    @property
    def page_bytes(self) -> int:
        """The largest page that its Linux may use."""
        return 4096

    @property
    def dots(self) -> Sequence[Dot]:
        """The dot products of the architecture, the best first."""
        return ()

    @property
    def table_lookups(self) -> Sequence[TableLookup]:
        """The lookups of bytes in tables of the architecture, the best first."""
        return ()

    @property
    def tile_units(self) -> Sequence[TileUnit]:
        """The units of the architecture that multiply tiles in registers."""
        return ()

    # -- what follows

    @property
    def threads(self) -> int:
        return self.cores

    @property
    def lanes(self) -> int:
        """The f32 elements of a vector register."""
        return self.vector_bits // 32

    @property
    def required_features(self) -> frozenset[str]:
        return self.backend.implied(self.cpu) | set(self.features)

    def machine(self, threads: int) -> Machine:
        """Return the part of the machine that a kernel with `threads` threads has, as figures."""
        from farrier.space.machine import Machine

        caches = self.l1_bytes, self.l2_bytes, self.l3_bytes
        machine = Machine(self.lanes, self.registers, threads, *caches, **self.figures)
        drawn = min(machine.memory_bandwidth, threads * machine.core_bandwidth)
        return dataclasses.replace(machine, memory_bandwidth=drawn)

    @property
    def available_dots(self) -> tuple[Dot, ...]:
        """The dot products of the machine, the best first."""
        features = self.required_features
        return tuple(dot for dot in self.dots if dot.feature in features)

    def dot_of(self, left: DType, right: DType, total: DType) -> Dot | None:
        """Return the dot product that multiplies such operands into such totals, if any."""
        for dot in self.available_dots:
            if (dot.left, dot.right, dot.total) == (left, right, total):
                return dot
        return None

    def integer_dot(self) -> Dot | None:
        """Return the dot product that multiplies bytes by i8, if any: directly, whatever the
        signedness of the bytes, or as i16."""
        kinds = ((DType.U8, DType.I8), (DType.I8, DType.I8), (DType.I16, DType.I16))
        dots = (self.dot_of(*pair, DType.I32) for pair in kinds)
        return next((dot for dot in dots if dot is not None), None)

    def table_lookup(self) -> TableLookup | None:
        """Return the way to look many bytes up in a table at once, if any."""
        features = self.required_features
        return next((each for each in self.table_lookups if each.feature in features), None)

    def unit_of(self, left: DType, right: DType) -> TileUnit | None:
        """Return the unit that multiplies tiles of such operands, if any."""
        for unit in self.tile_units:
            product = unit.product
            if (product.left, product.right) == (left, right):
                return unit if product.features <= self.required_features else None
        return None


def as_cpu(target: Target) -> CpuTarget:
    """Return a target that must be a CPU. Raises CompilerError for any other."""
    if not isinstance(target, CpuTarget):
        raise CompilerError(f"{target.cpu} is not a CPU")
    return target
