"""The emission of the products of warpgroups: `wgmma`, whose factors lie in shared memory, and
whose sums each thread stores in a stack slot, which LLVM's passes turn into registers.

Sums, the positions of factors in memory and matrix descriptors are those of the PTX ISA, section
"Asynchronous warpgroup level matrix instructions".
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

from farrier.intrinsics.fragments import store_name, zero_name
from farrier.intrinsics.warpgroups import ROW_BYTES, WarpgroupProduct, product_name
from farrier.ir import expr as e
from farrier.ir import instr
from farrier.ir.dim import number
from farrier.ir.expr import Buffer, Expr
from farrier.ir.instr import F32, I32, I64, PTR, Operand
from farrier.ir.loop import Tile
from farrier.ir.threads import SUBGROUP_SIZE, WARPGROUP_SIZE
from farrier.ir.types import DType
from farrier.targets.cuda.expressions import Expressions
from farrier.targets.cuda.wgmma import PRODUCTS
from farrier.targets.gpu.inexpressible import InexpressibleError
from farrier.targets.llvm.builder import Builder

ALIGNMENT = 1024  # Bytes of a factor: the swizzle repeats every eight rows.
_WORD = 4  # Bytes.
_PAIR = 2  # Sums of a row that are neighbours.
_EACH_WARP = 16  # Rows of a fragment.
_SWIZZLE_128 = 1 << 30  # The mode in the upper word of a matrix descriptor.
_TYPES = {DType.F32: F32, DType.I32: I32}
_NAMES = {DType.F16: "f16", DType.BF16: "bf16", DType.I8: "s8", DType.U8: "u8"}
_TID = "llvm.nvvm.read.ptx.sreg.tid.x"


class Warpgroups:
    """The emitter of intrinsic calls of warpgroups. Addresses of tiles in memory are those of
    `expressions`."""

    def __init__(self, builder: Builder, expressions: Expressions) -> None:
        self._b, self._expressions = builder, expressions
        self._slots: dict[str, Operand] = {}
        self._sums: list[tuple[instr.Type, Operand]] = []  # The addresses of all sums.
        self.writers: Mapping[str, Callable[..., None]] = {
            name: functools.partial(write, self) for name, write in _writers().items()
        }

    def allocate(self, buffer: Buffer) -> None:
        nbytes = number(buffer.nbytes) // WARPGROUP_SIZE
        slot = self._b.hoisted(0, instr.STACK, PTR, (), (nbytes, buffer.name))
        self._slots[buffer.name] = slot
        total = _TYPES[buffer.dtype]
        self._sums += [(total, self._b.offset(slot, at)) for at in range(0, nbytes, _WORD)]

    def order(self) -> None:
        """Order accesses to registers before later products."""
        self._with_sums("wgmma.fence.sync.aligned;")

    def wait(self, most: int) -> None:
        """Commit the products so far as a group, and wait until at most `most` groups are
        pending."""
        self._with_sums(f"wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned {most};")

    def _with_sums(self, text: str) -> None:
        """Emit instructions to which no access to the sums is moved: all sums are operands."""
        words = [self._b.load(total, word, _WORD) for total, word in self._sums]
        kinds = ["f" if total is F32 else "r" for total, _ in self._sums]
        ties = [str(at) for at in range(len(kinds))]
        constraints = ",".join([*(f"={kind}" for kind in kinds), *ties, "~{memory}"])
        result = instr.struct_of(*(total for total, _ in self._sums))
        new = self._b.shared_assembly(text, constraints, result, *words)
        for at, (_, word) in enumerate(self._sums):
            self._b.store(self._b.part(new, at), word, _WORD)

    def publish(self) -> None:
        """Make stores to shared memory visible to later products."""
        self._b.shared_assembly("fence.proxy.async.shared::cta;", "~{memory}", instr.VOID)

    def _words(self, tile: Tile, columns: int) -> list[Operand]:
        """Return the addresses of the words of `columns` columns of a fragment that the current
        thread holds."""
        buffer = tile.buffer
        rows, width = tile.axes
        at: Expr = e.index(0)
        for axis, (extent, index) in enumerate(zip(buffer.shape, tile.origin, strict=True)):
            if axis not in tile.axes:
                at = e.add(e.mul(at, extent), index)
        each = number(buffer.shape[rows]) * number(buffer.shape[width]) // WARPGROUP_SIZE
        column = e.floordiv(e.mul(tile.origin[width], each), buffer.shape[width])
        indices = self._expressions.indices
        form = indices.simplifier.linear(e.mul(e.add(e.mul(at, each), column), _WORD))
        first = indices.address(self._slots[buffer.name], form, buffer.nbytes)
        count = number(buffer.shape[rows]) * columns // WARPGROUP_SIZE
        return [self._b.offset(first, _WORD * place) for place in range(count)]

    def zero(self, product: WarpgroupProduct, c: Tile) -> None:
        for word in self._words(c, product.columns):
            self._b.store(instr.number_of(I32, 0), word, _WORD)

    def multiply(
        self, product: WarpgroupProduct, across: Sequence[bool], c: Tile, a: Tile, b: Tile
    ) -> None:
        """Emit a product: the sums are operands that are read and written."""
        total = _TYPES[product.total]
        words = self._words(c, product.columns)
        count = len(words)
        sums = [self._b.load(total, word, _WORD) for word in words]
        factors = [
            self._descriptor(tile, is_across)
            for tile, is_across in zip((a, b), across, strict=True)
        ]
        kind, result = ("f", "f32") if total is F32 else ("r", "s32")
        shape = f"m64n{product.columns}k{product.depth}"
        types = f"{result}.{_NAMES[product.left]}.{_NAMES[product.right]}"
        # Add to the sums. Floats have signs of the factors, and those of two bytes their order.
        more = ["1"]
        if product.total.is_float:
            more += ["1", "1", *(str(int(each)) for each in across)]
        listed = ", ".join(f"${at}" for at in range(count))
        operands = ", ".join([f"{{{listed}}}", f"${2 * count}", f"${2 * count + 1}", *more])
        text = f"wgmma.mma_async.sync.aligned.{shape}.{types} {operands};"
        constraints = [f"={kind}"] * count + [str(at) for at in range(count)] + ["l", "l"]
        new = self._b.shared_assembly(
            *(text, ",".join([*constraints, "~{memory}"]), instr.struct_of(*[total] * count)),
            *(*sums, *factors),
        )
        for at, word in enumerate(words):
            self._b.store(self._b.part(new, at), word, _WORD)

    def _descriptor(self, memory: Tile, is_across: bool) -> Operand:
        """Return the matrix descriptor of a factor."""
        buffer = memory.buffer
        layout, row = buffer.layout, ROW_BYTES // buffer.dtype.nbytes
        swizzle = layout.swizzle if layout is not None else None
        if layout is None or swizzle is None or layout.dims[-1].mod != row:
            raise InexpressibleError(f"{buffer.name} does not lie in rows of {ROW_BYTES} bytes")
        indices = self._expressions.indices
        first = [indices.simplifier.linear(index) for index in memory.origin[-2:]]
        if indices.divisor(first[0], 8) != 8:
            raise InexpressibleError(f"a tile of {buffer.name} begins within a swizzle")
        b, address = self._b, self._expressions.address(buffer, memory.origin)
        at = b.convert(instr.PTRTOINT, address, I32)
        start = b.op(instr.AND, b.op(instr.LSHR, at, _number(4)), _number((1 << 14) - 1))
        # Across: from a column of rows to the next.
        between = number(layout.physical_shape(buffer.shape)[-2]) * ROW_BYTES
        leading = (between >> 4 if is_across else 1) << 16
        words: Operand = b.insert(
            instr.poison(I32.of(2)), b.op(instr.OR, start, _number(leading)), 0
        )
        # From eight rows to the next.
        words = b.insert(words, _number(_SWIZZLE_128 | 8 * ROW_BYTES >> 4), 1)
        return b.bitcast(words, I64)

    def store(self, product: WarpgroupProduct, memory: Tile, c: Tile) -> None:
        """Emit the stores of some columns of the sums: a thread has pairs of neighbours in two
        rows of its warp."""
        b, buffer, total = self._b, memory.buffer, _TYPES[product.total]
        if not buffer.is_plain or memory.axes != (0, 1):
            raise InexpressibleError(f"rows of {buffer.name} do not lie one after the other")
        values = [b.load(total, word, _WORD) for word in self._words(c, product.stored)]
        thread, step = b.call(_TID, I32), number(buffer.shape[1]) * _WORD
        warp = b.op(instr.LSHR, b.op(instr.AND, thread, _number(WARPGROUP_SIZE - 1)), _number(5))
        lane = b.op(instr.AND, thread, _number(SUBGROUP_SIZE - 1))
        row = b.op(instr.MUL, warp, _number(_EACH_WARP))
        row = b.op(instr.ADD, row, b.op(instr.LSHR, lane, _number(2)))
        pair = b.op(instr.MUL, b.op(instr.AND, lane, _number(3)), _number(_PAIR * _WORD))
        at = b.op(instr.ADD, b.op(instr.MUL, row, _number(step)), pair)
        base = self._expressions.address(buffer, memory.origin)
        base = b.offset(base, b.convert(instr.ZEXT, at, I64))
        for number_of_pair in range(len(values) // _PAIR):
            column, half = divmod(number_of_pair, 2)
            both: Operand = instr.poison(total.of(_PAIR))
            for part in range(_PAIR):
                both = b.insert(both, values[_PAIR * number_of_pair + part], part)
            place = b.offset(base, 8 * (column * _WORD + half * step))
            b.store(both, place, _PAIR * _WORD)


def _writers() -> dict[str, Callable[..., None]]:
    """Return the emitter of each intrinsic, by its name."""
    writers: dict[str, Callable[..., None]] = {}
    for product in PRODUCTS:
        writers[zero_name(product.name)] = _bound(Warpgroups.zero, product)
        writers[store_name(product.name)] = _bound(Warpgroups.store, product)
        kinds = (False, True) if product.reads_across else (False,)
        for across in itertools.product(kinds, kinds):
            name = product_name(product.name, across)
            writers[name] = _bound(Warpgroups.multiply, product, across)
    return writers


def _bound(write: Callable[..., None], *bound: object) -> Callable[..., None]:
    return lambda emitter, *tiles: write(emitter, *bound, *tiles)


def _number(value: int) -> Operand:
    return instr.number_of(I32, value)
