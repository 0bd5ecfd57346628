"""Register tiles: buffers that are SSA values, keyed by the constant number of their element.

A piece is the value of some consecutive elements, as wide as it was stored. What is read as it was
stored costs nothing; other widths are put together from lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from farrier.codegen.builder import Builder
from farrier.codegen.text import Value, type_of
from farrier.errors import CompilerError
from farrier.ir.expr import Buffer

Tiles = dict[str, dict[int, "Piece"]]


class Piece(NamedTuple):
    """Elements [first, first + width); the value has at least `width` lanes."""

    value: Value
    width: int


class Registers:
    """The register buffers of one function and what they hold at this point."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.tiles: Tiles = {}

    @property
    def vectors(self) -> int:
        """How many vector values are held: a measure of register pressure."""
        return sum(piece.value.lanes > 1 for tile in self.tiles.values() for piece in tile.values())

    def snapshot(self, names: Iterable[str]) -> Tiles:
        return {name: dict(self.tiles[name]) for name in names if name in self.tiles}

    def read(self, buffer: Buffer, first: int, width: int, lanes: int) -> Value:
        """Elements [first, first + width) in a value of `lanes` lanes."""
        value = self.find(buffer.name, first, width, lanes)
        if value is None:
            raise CompilerError(
                f"register {buffer.name}[{first}:{first + width}] is read before it is written"
            )
        return value

    def find(self, name: str, first: int, width: int, lanes: int) -> Value | None:
        tile = self.tiles[name]
        piece = tile.get(first)
        if piece is not None and piece.width == width and piece.value.lanes == lanes:
            return piece.value
        if width == 1:
            return self._element(tile, first)
        total: str | None = None
        for lane in range(width):
            element = self._element(tile, first + lane)
            if element is None:
                return None
            kind = type_of(element.dtype, lanes)
            total = self.b.pure(
                f"insertelement {kind} {total or 'poison'}, "
                f"{element.type} {element.text}, i64 {lane}"
            )
            dtype = element.dtype
        assert total is not None
        return Value(total, dtype, lanes)

    def write(self, name: str, first: int, width: int, value: Value) -> None:
        """Sets elements [first, first + width)."""
        tile = self.tiles[name]
        piece = tile.get(first)
        if piece is None or piece.width != width:
            self._clear(tile, first, width)
        tile[first] = Piece(value, width)

    def _element(self, tile: dict[int, Piece], number: int) -> Value | None:
        for start, (value, width) in tile.items():
            if start <= number < start + width:
                if value.lanes == 1:
                    return value
                lane = number - start
                text = self.b.pure(f"extractelement {value.type} {value.text}, i64 {lane}")
                return Value(text, value.dtype)
        return None

    def _clear(self, tile: dict[int, Piece], first: int, width: int) -> None:
        """Removes [first, first + width); pieces that reach beyond are split into elements."""
        for start, piece in list(tile.items()):
            end = start + piece.width
            if end <= first or start >= first + width:
                continue
            rest = [n for n in range(start, end) if not first <= n < first + width]
            kept = {n: self._element(tile, n) for n in rest}
            del tile[start]
            tile.update({n: Piece(v, 1) for n, v in kept.items() if v is not None})
