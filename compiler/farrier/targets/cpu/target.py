"""The target class of CPUs: the fields of a CPU, and the properties of its instructions and
caches."""

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
    """A kind of CPU. Sizes are in bytes. Each core has its own caches, except that all cores share
    the last level.

    Each architecture has a subclass. Methods import compiler modules when called, so that a session
    that only loads an artifact does not import them.
    """

    vector_bits: int
    registers: int  # Architectural vector registers.
    cores: int  # The cores that a model runs on; only the big cores of a hybrid processor.
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    tune: str = ""  # LLVM's name of the microarchitecture, where its costs are known.
    # The Linux kernel's name of the processor, as timings of different processors are not
    # comparable.
    core: str = ""

    @property
    @abc.abstractmethod
    def backend(self) -> CpuBackend: ...

    # -- what an architecture says of a machine

    @property
    @abc.abstractmethod
    def figures(self) -> Mapping[str, Any]:
        """The performance figures of the core, as fields of `space.machine.Machine`. A field that
        is left out has the value of the simplest core."""

    @property
    @abc.abstractmethod
    def llvm(self) -> LLVMMachine:
        """The description of the machine for LLVM: triple, CPU, features and flags."""

    @property
    @abc.abstractmethod
    def instructions(self) -> Instructions:
        """The special instructions of the machine that the emitter may use."""

    @property
    @abc.abstractmethod
    def support(self) -> str:
        """The LLVM text of the architecture-specific functions in the support library
        (`codegen.support`)."""

    @property
    def page_bytes(self) -> int:
        """The largest page size that Linux uses on this architecture, in bytes."""
        return 4096

    @property
    def code_weight(self) -> float:
        """The share of a kernel's time that one more instruction of its code must save. 0 where
        memory for code is plentiful."""
        return 0.0

    @property
    def dots(self) -> Sequence[Dot]:
        """The dot-product instructions of the architecture, best first."""
        return ()

    @property
    def table_lookups(self) -> Sequence[TableLookup]:
        """The table-lookup instructions of the architecture, best first."""
        return ()

    @property
    def tile_units(self) -> Sequence[TileUnit]:
        """The units of the architecture that multiply matrix tiles held in registers."""
        return ()

    # -- what follows

    @property
    def threads(self) -> int:
        return self.cores

    @property
    def lanes(self) -> int:
        """The number of f32 elements in a vector register."""
        return self.vector_bits // 32

    @property
    def required_features(self) -> frozenset[str]:
        return self.backend.implied(self.cpu) | set(self.features)

    def machine(self, threads: int) -> Machine:
        """Return the performance figures of the machine for a kernel that runs on `threads`
        threads, with the memory bandwidth that these threads can draw."""
        from farrier.space.machine import Machine

        caches = self.l1_bytes, self.l2_bytes, self.l3_bytes
        machine = Machine(self.lanes, self.registers, threads, *caches, **self.figures)
        drawn = min(machine.memory_bandwidth, threads * machine.core_bandwidth)
        return dataclasses.replace(machine, memory_bandwidth=drawn)

    @property
    def available_dots(self) -> tuple[Dot, ...]:
        """The dot-product instructions that this machine has, best first."""
        features = self.required_features
        return tuple(dot for dot in self.dots if dot.feature in features)

    def dot_of(self, left: DType, right: DType, total: DType) -> Dot | None:
        """Return the dot-product instruction for factors of the dtypes `left` and `right` and
        totals of the dtype `total`; None if the machine has none."""
        for dot in self.available_dots:
            if (dot.left, dot.right, dot.total) == (left, right, total):
                return dot
        return None

    def integer_dot(self) -> Dot | None:
        """Return the best dot-product instruction for products of bytes and i8, either direct for
        one signedness of the bytes or after widening both to i16; None if the machine has none."""
        kinds = ((DType.U8, DType.I8), (DType.I8, DType.I8), (DType.I16, DType.I16))
        dots = (self.dot_of(*pair, DType.I32) for pair in kinds)
        return next((dot for dot in dots if dot is not None), None)

    def table_lookup(self) -> TableLookup | None:
        """Return the best instruction that looks up many bytes in a table at once; None if the
        machine has none."""
        features = self.required_features
        return next((each for each in self.table_lookups if each.feature in features), None)

    def units_of(self, left: DType, right: DType) -> tuple[TileUnit, ...]:
        """Return the units that multiply tiles with elements of the dtypes `left` and `right`, best
        first."""
        features = self.required_features
        return tuple(
            unit
            for unit in self.tile_units
            if (unit.product.left, unit.product.right) == (left, right)
            and unit.product.features <= features
        )

    def unit_of(self, left: DType, right: DType) -> TileUnit | None:
        """Return the best unit that multiplies tiles with elements of the dtypes `left` and
        `right`; None if the machine has none."""
        return next(iter(self.units_of(left, right)), None)


def as_cpu(target: Target) -> CpuTarget:
    """Return `target` as a CpuTarget. Raises CompilerError if it is another kind of target."""
    if not isinstance(target, CpuTarget):
        raise CompilerError(f"{target.cpu} is not a CPU")
    return target
