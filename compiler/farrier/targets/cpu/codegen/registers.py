"""Register tiles: buffers whose elements are SSA values, identified by constant element numbers.

A tile is stored as pieces. A piece is the value of evenly spaced elements that were written at
once. Reading the elements of a piece together takes no instruction; any other read is assembled
from lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from farrier.errors import CompilerError
from farrier.ir import instr
from farrier.ir.instr import Operand, vector
from farrier.ir.types import DType
from farrier.targets.cpu.codegen.transpose import column
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.values import Value, type_of

_FEWEST = 4  # The smallest number of rows and lanes for which transposing a square is faster.

Tiles = dict[str, dict[int, "Piece"]]


class Piece(NamedTuple):
    """The `width` elements first, first + stride, … of a register tile, in the lanes of one value,
    which has at least `width` lanes."""

    value: Value
    width: int
    stride: int = 1

    def is_like(self, width: int, stride: int, lanes: int) -> bool:
        same = self.width == width and self.value.lanes == lanes
        return same and (self.stride == stride or width <= 1)

    def elements(self, first: int) -> range:
        return range(first, first + self.width * self.stride, self.stride)


class Registers:
    """The register buffers of one function, and their contents at the current position."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.tiles: Tiles = {}

    @property
    def vectors(self) -> int:
        """The number of values that all register tiles hold, a measure of register pressure."""
        return sum(piece.value.lanes > 1 for tile in self.tiles.values() for piece in tile.values())

    def snapshot(self, names: Iterable[str]) -> Tiles:
        return {name: dict(self.tiles[name]) for name in names if name in self.tiles}

    def read(self, name: str, first: int, width: int, stride: int, lanes: int) -> Value:
        """Return `width` elements starting at `first`, `stride` apart, as a value with `lanes`
        lanes. Raises CompilerError if they have not been written."""
        value = self.find(name, first, width, stride, lanes)
        if value is None:
            raise CompilerError(
                f"register {name}[{first}:{first + width * stride}:{stride}] is read before it is "
                "written"
            )
        return value

    def find(self, name: str, first: int, width: int, stride: int, lanes: int) -> Value | None:
        """Return `width` elements starting at `first`, `stride` apart, as `read` does, but None if
        none of them has been written. Single unwritten elements are allowed: they are padding lanes
        of a partial block, whose results are never read."""
        tile = self.tiles[name]
        piece = tile.get(first)
        if piece is not None and piece.is_like(width, stride, lanes):
            return piece.value
        if width == 1:
            return self._element(tile, first)
        rows = _rows(tile, first, width, stride)
        if rows is not None:
            return column(self.b, *rows, lanes)
        total: Operand | None = None
        dtype = None
        for lane in range(width):
            element = self._element(tile, first + lane * stride)
            if element is None:
                continue
            dtype = element.dtype
            if total is None:
                total = instr.poison(type_of(dtype, lanes))
            total = self.b.insert(total, element.operand, lane)
        return None if total is None or dtype is None else Value(total, dtype, lanes)

    def find_group(self, name: str, first: int, size: int, stride: int) -> Value | None:
        """Return the `size` elements first, first + stride, … as one i32; together, they must have
        32 bits. Return None unless they are in adjacent lanes of a single vector, starting at a
        lane that is a multiple of `size`."""
        for start, (value, width, step) in self.tiles[name].items():
            at, apart = divmod(first - start, stride)
            inside = apart == 0 <= at <= width - size and at % size == 0
            if inside and step == stride and value.lanes % size == 0:
                words = vector("i32", value.lanes // size)
                text = self.b.bitcast(value.operand, words)
                if value.lanes > size:
                    text = self.b.extract(text, at // size)
                return Value(text, DType.I32)
        return None

    def write(self, name: str, first: int, piece: Piece) -> None:
        """Write the elements of `piece` to the register tile `name`, starting at element
        `first`. An older piece that contains some of these elements is split, and its other
        elements stay."""
        tile = self.tiles[name]
        old = tile.get(first)
        if old is None or old.width != piece.width or old.stride != piece.stride:
            self._clear(tile, first, piece)
        tile[first] = piece

    def divide_like(self, pieces: Tiles) -> None:
        """Regroup the current elements into the same pieces as in `pieces`, so that two branches
        can be merged piece by piece."""
        for name, tile in pieces.items():
            for first, (old, width, stride) in tile.items():
                held = self.tiles[name].get(first)
                if held is not None and held.is_like(width, stride, old.lanes):
                    continue
                value = self.find(name, first, width, stride, old.lanes)
                if value is not None:
                    self.write(name, first, Piece(value, width, stride))

    def _element(self, tile: dict[int, Piece], number: int) -> Value | None:
        for start, piece in tile.items():
            elements = piece.elements(start)
            if number in elements:
                if piece.value.lanes == 1:
                    return piece.value
                lane, value = elements.index(number), piece.value
                text = self.b.extract(value.operand, lane)
                return Value(text, value.dtype)
        return None

    def _clear(self, tile: dict[int, Piece], first: int, piece: Piece) -> None:
        """Remove the elements of `piece` from a tile. The other elements of a partly overlapping
        piece become single-element pieces."""
        wanted = piece.elements(first)
        for start, old in list(tile.items()):
            elements = old.elements(start)
            if _disjoint(elements, wanted):
                continue
            kept = {n: self._element(tile, n) for n in elements if n not in wanted}
            del tile[start]
            tile.update({n: Piece(v, 1) for n, v in kept.items() if v is not None})


def _rows(
    tile: dict[int, Piece], first: int, width: int, stride: int
) -> tuple[list[Value], int] | None:
    """Find the elements first, first + stride, … of a tile in the same lane of successive vectors.
    Return these vectors and the number of the lane, or None if the elements are not stored in this
    way."""
    if width < _FEWEST:
        return None
    for start, piece in tile.items():
        elements = piece.elements(start)
        if first in elements:
            break
    else:
        return None
    if piece.width < _FEWEST or piece.stride == stride:
        return None
    pieces = [tile.get(start + n * stride) for n in range(width)]
    values = [p.value for p in pieces if p is not None and p[1:] == piece[1:]]
    return (values, elements.index(first)) if len(values) == width else None


def _disjoint(a: range, b: range) -> bool:
    if a.stop <= b.start or b.stop <= a.start:
        return True
    if a.step == b.step and (a.start - b.start) % a.step:
        return True
    return not any(n in b for n in a)
