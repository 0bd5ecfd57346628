"""The generation of a kernel's instruction stream for a tiling: groups of loads, products and
stores, synchronized by tokens.

    for each round of tiles (one tile for each virtual thread):
        for each group of input blocks, and for each virtual thread:
            load      inputs and weights; in the first group also the operands of the epilogue
            compute   in the first group the initial sums; products; in the last the epilogue
            store     in the last group the results

With `threads` virtual threads, group n uses part n modulo `threads` of the scratchpads for inputs
and weights, and tile n uses part n modulo `threads` of the scratchpad for sums. Group n therefore
waits until group n - threads has been computed, and tile n until tile n - threads has been stored.
Data that is already in its part of a scratchpad is not loaded again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from farrier.ir.types import DType
from farrier.targets.dae.anchor import Anchor, Method
from farrier.targets.dae.costs import Costs
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.epilogue import Epilogue
from farrier.targets.dae.images import Image
from farrier.targets.dae.instructions import WITH_BOTH, Alu, Instruction, Kind, Pad
from farrier.targets.dae.steps import Channels, Step, Sums, Tensor
from farrier.targets.dae.tiles import Span, Tile, Tiling, spans, tiles


def instructions_of(
    anchor: Anchor, epilogue: Epilogue, tiling: Tiling, accelerator: Accelerator
) -> list[Instruction]:
    """Return the instructions of an anchor with its epilogue."""
    return _Stream(anchor, epilogue, tiling, accelerator).made()


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """The instructions between two synchronizations: they load a range of input blocks and add the
    products to the sums of one tile. `number` counts the groups of all tiles, `tile_number` the
    tiles."""

    tile: Tile
    inputs: Span
    number: int
    tile_number: int
    is_first: bool
    is_last: bool


class _Stream:
    def __init__(
        self, anchor: Anchor, epilogue: Epilogue, tiling: Tiling, accelerator: Accelerator
    ) -> None:
        self._anchor = anchor
        self._epilogue = epilogue
        self._tiling = tiling
        self._accelerator = accelerator
        self._costs = Costs(anchor, epilogue, accelerator)
        self._room = self._costs.room(tiling)
        # The data that each part of a scratchpad contains.
        self._held: dict[tuple[str, int], object] = {}

    def made(self) -> list[Instruction]:
        groups = list(self._groups())
        last_group, last_tile = len(groups), groups[-1].tile_number + 1
        threads = self._tiling.threads
        program: list[Instruction] = []
        for group in groups:
            loads, computes = self._loads(group), self._computes(group)
            stores = self._stores(group) if group.is_last else []
            if group.number >= threads:
                loads[0] = loads[0].where(pop_next=1)
            loads[-1] = loads[-1].where(push_next=1)
            computes[0] = computes[0].where(pop_previous=1)
            if group.is_first and group.tile_number >= threads:
                computes[0] = computes[0].where(pop_next=1)
            if group.number + threads < last_group:
                computes[-1] = computes[-1].where(push_previous=1)
            if stores:
                computes[-1] = computes[-1].where(push_next=1)
                stores[0] = stores[0].where(pop_previous=1)
                if group.tile_number + threads < last_tile:
                    stores[-1] = stores[-1].where(push_previous=1)
            program += [*loads, *computes, *stores]
        # The final instruction waits for the last store.
        program[-1] = program[-1].where(push_previous=1)
        return [*program, Instruction(Kind.FINISH, {"pop_next": 1})]

    def _groups(self) -> Iterator[_Group]:
        inputs = spans(self._anchor.blocks_in, self._tiling.inputs)
        every = list(enumerate(tiles(self._anchor, self._tiling)))
        threads, number = self._tiling.threads, 0
        for first in range(0, len(every), threads):
            for at, span in enumerate(inputs):
                for tile_number, tile in every[first : first + threads]:
                    is_last = at == len(inputs) - 1
                    yield _Group(tile, span, number, tile_number, at == 0, is_last)
                    number += 1

    # -- places in scratchpads

    def _part(self, group: _Group) -> int:
        return group.number % self._tiling.threads

    def _sums_at(self, group: _Group) -> int:
        return group.tile_number % self._tiling.threads * self._room.sums

    def _operand_at(self, operand: Tensor | Channels, group: _Group) -> int:
        at = self._sums_at(group)
        if isinstance(operand, Tensor):
            return at + self._room.tile * (1 + self._costs.tensors.index(operand))
        vectors = at + self._room.tile * (1 + len(self._costs.tensors))
        return vectors + self._tiling.blocks * self._costs.vectors.index(operand)

    def _taps_at(self, group: _Group) -> int:
        """Return the scratchpad address of the weights of an anchor on sums."""
        vectors = self._tiling.blocks * len(self._costs.vectors)
        return self._sums_at(group) + self._room.tile * (1 + len(self._costs.tensors)) + vectors

    def _image_at(self, group: _Group) -> int:
        """Return the scratchpad address of the image of an anchor on sums."""
        taps = 0 if self._anchor.weights is None else self._anchor.taps
        return self._taps_at(group) + self._tiling.blocks * taps

    # -- loads

    def _loads(self, group: _Group) -> list[Instruction]:
        part = self._part(group)
        steps: list[Instruction] = []
        if self._anchor.method is Method.NONE:
            return self._operands(group)
        if self._anchor.is_on_sums:
            return self._loads_of_sums(group)
        image = (group.inputs, group.tile.rows, group.tile.columns)
        if self._is_new("input", part, image):
            steps += self._image(group, part * self._room.inputs)
        if self._is_new("weight", part, (group.inputs, group.tile.blocks)):
            steps.append(self._weights(group, part * self._room.weights))
        if group.is_first:
            steps += self._operands(group)
        # Even if all data of a group is present, the group needs a load that pushes its token.
        return steps or self._image(group, part * self._room.inputs)

    def _operands(self, group: _Group) -> list[Instruction]:
        """Return the loads of the epilogue's operands."""
        slot = group.tile_number % self._tiling.threads
        steps = [
            self._vector(vector, group)
            for vector in self._costs.vectors
            if self._is_new(f"vector{vector.position}", slot, group.tile.blocks)
        ]
        for tensor in self._costs.tensors:
            steps += self._tensor(tensor, group)
        return steps

    def _loads_of_sums(self, group: _Group) -> list[Instruction]:
        """Return the loads for the vector unit: the image, into the scratchpad of sums, and for a
        depthwise convolution a weight for each channel and tap."""
        steps = self._image(group, self._image_at(group))
        slot, weights = group.tile_number % self._tiling.threads, self._anchor.weights
        if weights is not None and self._is_new("weight", slot, group.tile.blocks):
            blocks, taps = group.tile.blocks, self._anchor.taps
            fields = {
                "pad": Pad.SUM,
                "argument": weights.position,
                "offset": blocks.first * taps * self._accelerator.sum_bytes,
                "index": self._taps_at(group),
                "rows": 1,
                "columns": blocks.count * taps,
            }
            steps.append(Instruction(Kind.LOAD, fields))
        return [*steps, *self._operands(group)]

    def _is_new(self, what: str, part: int, content: object) -> bool:
        if self._held.get((what, part)) == content:
            return False
        self._held[what, part] = content
        return True

    def _image(self, group: _Group, at: int) -> list[Instruction]:
        """Return the loads of the input blocks that a group reads, with their padding, block after
        block."""
        anchor, image = self._anchor, self._anchor.image
        rows, top, bottom = self._reads(0, group.tile.rows, image.height)
        columns, left, right = self._reads(1, group.tile.columns, image.width)
        if self._is_matrix:
            return [self._matrix_rows(group, at)]
        size = (top + rows.count + bottom) * (left + columns.count + right)
        pad, blocks = Pad.INPUT, group.inputs
        if anchor.is_on_sums:
            pad = Pad.SIGNED if image.dtype is DType.I8 else Pad.UNSIGNED
            blocks = group.tile.blocks
        return [
            Instruction(
                Kind.LOAD,
                {
                    "pad": pad,
                    "argument": image.position,
                    "offset": block * image.block_stride
                    + rows.first * image.y_stride
                    + columns.first * image.x_stride,
                    "index": at + number * size,
                    "rows": rows.count,
                    "columns": columns.count,
                    "stride": image.y_stride,
                    "top": top,
                    "bottom": bottom,
                    "left": left,
                    "right": right,
                    "fill": _signed(anchor.fill),
                },
            )
            for number, block in enumerate(_range(blocks))
        ]

    def _matrix_rows(self, group: _Group, at: int) -> Instruction:
        """Return the load of a matrix's rows, in which channel blocks are adjacent."""
        image, columns = self._anchor.image, group.tile.columns
        return Instruction(
            Kind.LOAD,
            {
                "pad": Pad.INPUT,
                "argument": image.position,
                "offset": columns.first * image.x_stride + group.inputs.first * image.block_stride,
                "index": at,
                "rows": columns.count,
                "columns": group.inputs.count,
                "stride": image.x_stride,
            },
        )

    @property
    def _is_matrix(self) -> bool:
        """Check whether the channel blocks of a point are adjacent in memory, as in the rows of a
        matrix."""
        nbytes = self._accelerator.input_bytes
        if self._anchor.taps != 1 or self._anchor.method is not Method.PRODUCTS:
            return False
        return self._anchor.image.block_stride == nbytes

    def _reads(self, axis: int, points: Span, extent: int) -> tuple[Span, int, int]:
        """Return the range of an image's axis that is read for `points`, and the padding before and
        after it."""
        anchor = self._anchor
        first = points.first * anchor.strides[axis] - anchor.before[axis]
        end = first + anchor.rows_of(axis, points.count)
        inside = Span(max(0, first), max(0, min(extent, end) - max(0, first)))
        return inside, max(0, -first), max(0, end - extent)

    def _weights(self, group: _Group, at: int) -> Instruction:
        anchor, nbytes = self._anchor, self._accelerator.weight_bytes
        assert anchor.weights is not None
        row = anchor.blocks_in * anchor.taps * nbytes
        first = group.tile.blocks.first * row + group.inputs.first * anchor.taps * nbytes
        return Instruction(
            Kind.LOAD,
            {
                "pad": Pad.WEIGHT,
                "argument": anchor.weights.position,
                "offset": first,
                "index": at,
                "rows": group.tile.blocks.count,
                "columns": group.inputs.count * anchor.taps,
                "stride": row,
            },
        )

    def _vector(self, vector: Channels, group: _Group) -> Instruction:
        blocks, nbytes = group.tile.blocks, self._accelerator.sum_bytes
        return Instruction(
            Kind.LOAD,
            {
                "pad": Pad.SUM,
                "argument": vector.position,
                "offset": blocks.first * nbytes,
                "index": self._operand_at(vector, group),
                "rows": 1,
                "columns": blocks.count,
            },
        )

    def _tensor(self, tensor: Tensor, group: _Group) -> list[Instruction]:
        at = self._operand_at(tensor, group)
        steps = self._transfers(tensor.image, group.tile, at)
        return [Instruction(Kind.LOAD, {"pad": tensor.form, **fields}) for fields in steps]

    def _transfers(self, image: Image, tile: Tile, at: int) -> list[dict[str, int]]:
        """Return the fields of the instructions that transfer a tile between the scratchpad of sums
        and an image."""
        rows, columns = tile.rows, tile.columns
        size = rows.count * columns.count
        return [
            {
                "argument": image.position,
                "offset": block * image.block_stride
                + rows.first * image.y_stride
                + columns.first * image.x_stride,
                "index": at + number * size,
                "rows": columns.count if self._by_rows(image) else rows.count,
                "columns": 1 if self._by_rows(image) else columns.count,
                "stride": image.x_stride if self._by_rows(image) else image.y_stride,
            }
            for number, block in enumerate(_range(tile.blocks))
        ]

    def _by_rows(self, image: Image) -> bool:
        """Check whether successive points along x are apart in memory, like the rows of a
        matrix."""
        return image.x_stride != self._accelerator.matrix.outer * image.dtype.nbytes

    # -- products and sums

    def _computes(self, group: _Group) -> list[Instruction]:
        steps = []
        if group.is_first and self._anchor.method is not Method.NONE:
            steps.append(self._alu(Step(Alu.MOVE, Sums(), self._epilogue.first), group))
        match self._anchor.method:
            case Method.PRODUCTS:
                steps.append(self._gemm(group))
            case Method.DEPTHWISE:
                steps += [self._floats(group), *self._windows(group, Alu.ACCUMULATE)]
            case Method.MAXIMA:
                steps += self._windows(group, Alu.MAX)
            case Method.SUMS:
                steps += self._windows(group, Alu.ADD)
        if group.is_last:
            steps += [self._alu(step, group) for step in self._epilogue.steps]
        return steps

    def _gemm(self, group: _Group) -> Instruction:
        anchor, tile, part = self._anchor, group.tile, self._part(group)
        height = anchor.rows_of(0, tile.rows.count)
        width = anchor.rows_of(1, tile.columns.count)
        size = tile.rows.count * tile.columns.count
        taps, inputs = anchor.taps, group.inputs.count
        block, point = height * width, 1
        if self._is_matrix:
            block, point = 1, inputs
        loops = (
            (tile.blocks.count, size, 0, inputs * taps),
            (tile.rows.count, tile.columns.count, anchor.strides[0] * width * point, 0),
            (tile.columns.count, 1, anchor.strides[1] * point, 0),
            (inputs, 0, block, taps),
            (anchor.kernel[0], 0, anchor.dilations[0] * width * point, anchor.kernel[1]),
            (anchor.kernel[1], 0, anchor.dilations[1] * point, 1),
        )
        fields = {
            "sum": self._sums_at(group),
            "input": part * self._room.inputs,
            "weight": part * self._room.weights,
        }
        for number, (count, sums, data, weights) in enumerate(loops):
            fields |= _loop(number, count, {"sum": sums, "input": data, "weight": weights})
        return Instruction(Kind.GEMM, fields)

    def _floats(self, group: _Group) -> Instruction:
        """Return the instruction that converts an image in the scratchpad of sums to floats."""
        tile = group.tile
        height = self._anchor.rows_of(0, tile.rows.count)
        width = self._anchor.rows_of(1, tile.columns.count)
        fields = {"operation": Alu.TO_FLOAT, "is_immediate": 1, "to": self._image_at(group)}
        fields |= _loop(0, tile.blocks.count, {"to": height * width})
        fields |= _loop(1, height, {"to": width}) | _loop(2, width, {"to": 1})
        return Instruction(Kind.ALU, fields)

    def _windows(self, group: _Group, operation: Alu) -> list[Instruction]:
        """Return the instructions that combine the taps of an image in the scratchpad of sums, one
        row of taps at a time."""
        anchor, tile = self._anchor, group.tile
        height = anchor.rows_of(0, tile.rows.count)
        width = anchor.rows_of(1, tile.columns.count)
        kernel, size = anchor.kernel, tile.rows.count * tile.columns.count
        weight, weights = (0, 0) if anchor.weights is None else (1, anchor.taps)
        down, right = anchor.strides[0] * width, anchor.strides[1]
        steps = []
        for row in range(kernel[0]):
            fields = {
                "operation": operation,
                "to": self._sums_at(group),
                "from": self._image_at(group) + row * anchor.dilations[0] * width,
            }
            if anchor.weights is not None:
                fields["by"] = self._taps_at(group) + row * kernel[1]
            loops = (
                (kernel[1], 0, anchor.dilations[1], weight),
                (tile.blocks.count, size, height * width, weights),
                (tile.rows.count, tile.columns.count, down, 0),
                (tile.columns.count, 1, right, 0),
            )
            for number, (count, to, source, by) in enumerate(loops):
                fields |= _loop(number, count, {"to": to, "from": source, "by": by})
            steps.append(Instruction(Kind.ALU, fields))
        return steps

    def _alu(self, step: Step, group: _Group) -> Instruction:
        tile, operand = group.tile, step.operand
        rows, columns = tile.rows.count, tile.columns.count
        fields = {"operation": int(step.operation), "to": self._tile_at(step.tile, group)}
        by_block, by_point = rows * columns, 1
        if isinstance(operand, int):
            fields |= {"is_immediate": 1, "immediate": operand}
            by_block = by_point = 0
        elif isinstance(operand, Channels):
            fields["from"] = self._operand_at(operand, group)
            by_block, by_point = 1, 0
        else:
            fields["from"] = self._tile_at(operand, group)
        if step.operation in WITH_BOTH:
            fields["immediate"] = step.factor
        fields |= _loop(0, tile.blocks.count, {"to": rows * columns, "from": by_block})
        fields |= _loop(1, rows, {"to": columns, "from": by_point * columns})
        fields |= _loop(2, columns, {"to": 1, "from": by_point})
        return Instruction(Kind.ALU, fields)

    def _tile_at(self, tile: Sums | Tensor, group: _Group) -> int:
        return self._operand_at(tile, group) if isinstance(tile, Tensor) else self._sums_at(group)

    # -- stores

    def _stores(self, group: _Group) -> list[Instruction]:
        anchor, form = self._anchor, self._epilogue.form
        transfers = self._transfers(anchor.out, group.tile, self._sums_at(group))
        stores = [Instruction(Kind.STORE, {"form": form, **fields}) for fields in transfers]
        blocks = group.tile.blocks
        if anchor.out.excess and blocks.first + blocks.count == anchor.blocks_out:
            stores[-1] = stores[-1].where(omitted=anchor.out.excess)
        return stores


def _loop(number: int, count: int, strides: dict[str, int]) -> dict[str, int]:
    """Return the fields of a loop. Its strides are 0 if it has a single iteration."""
    fields = {f"count{number}": count}
    if count > 1:
        fields |= {f"{name}{number}": stride for name, stride in strides.items()}
    return fields


def _signed(byte: int) -> int:
    """Return a byte reinterpreted as a signed integer."""
    return byte - 256 if byte > 127 else byte


def _range(span: Span) -> Sequence[int]:
    return range(span.first, span.first + span.count)
