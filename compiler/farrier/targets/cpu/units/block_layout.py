"""The memory layout of weights that are quantized in blocks, and of their scales and zero
points."""

from __future__ import annotations

import dataclasses

from farrier.ir.expr import Var
from farrier.ir.types import DType, Layout, PhysicalDim
from farrier.schedule import Schedule
from farrier.targets.cpu.units.block_products import BlockProduct
from farrier.targets.cpu.units.contraction import extent_of

_WIDTHS = (1, 2, 4)  # Vectors of a panel: four of AVX-512 are a cache line of bytes.
_FILLED = 1.03  # A wider panel may take this many times the bytes of the narrowest.


@dataclasses.dataclass(frozen=True, slots=True)
class BlockLayout:
    """The layout of the weights of `product` in panels, for vectors of `lanes`. If a block is
    divisible accordingly, each lane holds groups of `most` adjacent codes (quantized integers), as
    dot products need them."""

    product: BlockProduct
    lanes: int
    most: int

    @property
    def block(self) -> int:
        return extent_of(self.product.part.stage, self.product.within)

    @property
    def per_byte(self) -> int:
        """The number of codes (quantized integers) that share a byte."""
        count = 8 // self.product.part.vector_load.buffer.dtype.bits
        return count if self.block % count == 0 else 1

    @property
    def group(self) -> int:
        """The number of adjacent codes (quantized integers) in a lane, which a dot product sums."""
        return self.most if self.block // self.per_byte % self.most == 0 else 1

    @property
    def panel(self) -> int:
        """The width of a panel of the weights, in vectors. It depends only on the weights.
        Kernels for other sizes, which may use narrower tiles, can therefore read the same packed
        constant."""
        columns = extent_of(self.product.total, self.product.lane)
        wholes = [-(-columns // (count * self.lanes)) * count for count in _WIDTHS]
        fits = [whole <= _FILLED * wholes[0] for whole in wholes]
        return max(count for count, fit in zip(_WIDTHS, fits, strict=True) if fit)

    @property
    def widths(self) -> tuple[int, ...]:
        """The possible widths of a tile, in vectors."""
        return tuple(count for count in _WIDTHS if self.panel % count == 0)

    def apply(self, schedule: Schedule) -> None:
        """Change the layout of the weights, scales and zero points to panels, block by block."""
        load, panel = self.product.part.vector_load, self.panel * self.lanes
        places = {index.name: at for at, index in enumerate(load.indices) if isinstance(index, Var)}
        product = self.product
        block, step, lane = (places[n] for n in (product.block_axis, product.within, product.lane))
        part = self.block // self.per_byte
        is_shared = self.per_byte > 1
        dims = [PhysicalDim(lane, panel), PhysicalDim(block)]
        dims.append(PhysicalDim(step, self.group, part // self.group if is_shared else 0))
        dims.append(PhysicalDim(lane, 1, panel))
        dims += [PhysicalDim(step, 1, self.group)] if self.group > 1 else []
        dims += [PhysicalDim(step, part)] if is_shared else []
        schedule.transform_layout(load.buffer.name, Layout(tuple(dims), (), self.per_byte))
        kinds = {parameter.buffer.name: parameter.buffer.dtype for parameter in product.parameters}
        for name, dtype in kinds.items():
            schedule.transform_layout(name, _of_parameter(dtype, panel))


def _of_parameter(dtype: DType, panel: int) -> Layout:
    """Return the layout of a parameter [blocks, columns] in panels. Integers of less than a byte
    share each byte among successive blocks."""
    count = 1 if dtype.is_float else 8 // dtype.bits
    dims = [PhysicalDim(1, panel), PhysicalDim(0, count), PhysicalDim(1, 1, panel)]
    dims += [PhysicalDim(0, 1, count)] if count > 1 else []
    return Layout(tuple(dims), (), count)
