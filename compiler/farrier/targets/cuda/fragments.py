"""The emission of tensor-core intrinsics. Each thread stores its words of a fragment (a tile
distributed over a warp) in a stack slot, which LLVM's passes turn into registers."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence

from farrier.intrinsics.copies import clear_name, copy_name
from farrier.intrinsics.exchanges import MASKS
from farrier.intrinsics.fragments import (
    FragmentProduct,
    factor_name,
    load_name,
    own_name,
    put_name,
    store_name,
    zero_name,
)
from farrier.ir import expr as e
from farrier.ir import instr
from farrier.ir.dim import number
from farrier.ir.expr import Buffer, Expr, UnaryOp
from farrier.ir.instr import F32, I32, PTR, Operand, Type
from farrier.ir.loop import Intrinsic, Tile
from farrier.ir.threads import SUBGROUP_SIZE, exchange_name
from farrier.ir.types import DType
from farrier.targets.cuda.expressions import Expressions
from farrier.targets.cuda.tensor_cores import COPIED, COPY_BYTES, EXCHANGED, PRODUCTS
from farrier.targets.gpu.inexpressible import InexpressibleError
from farrier.targets.llvm.arithmetic import to_memory
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.values import Value

_COLUMNS = 16  # The columns, and also the rows, of a product.
_CHUNK = 16  # The bytes of a row of one of the matrices that `ldmatrix` loads.
_WORD = 4  # Bytes.
_WHOLE_WARP = -1  # The mask of all threads of a warp, one bit each.
_LDMATRIX = "llvm.nvvm.ldmatrix.sync.aligned.m8n8"
_CP_ASYNC = "llvm.nvvm.cp.async.cg.shared.global.16"
_TO_TF32 = "llvm.nvvm.f2tf32.rna"
_LANE = "llvm.nvvm.read.ptx.sreg.laneid"
_TYPES = {DType.F32: F32, DType.I32: I32}
_HALVES = instr.vector("f16", 2)
# The names of the instruction, and the type of a word of a factor.
_MMA = {
    "mma_f16": ("m16n8k16.row.col.f32.f32", _HALVES),
    "mma_f16_k8": ("m16n8k8.row.col.f32.f32", _HALVES),
    "mma_bf16": ("m16n8k16.row.col.bf16", I32),
    "mma_tf32": ("m16n8k8.row.col.tf32", F32),
    "mma_i8_i8": ("m16n8k32.row.col.s8", I32),
    "mma_u8_u8": ("m16n8k32.row.col.u8", I32),
    "mma_i8_u8": ("m16n8k32.row.col.s8.u8", I32),
    "mma_u8_i8": ("m16n8k32.row.col.u8.s8", I32),
}


class Fragments:
    """The emitter of intrinsic calls on fragments. Addresses of tiles in memory are those of
    `expressions`."""

    def __init__(self, builder: Builder, expressions: Expressions) -> None:
        self._b, self._expressions = builder, expressions
        self._slots: dict[str, Operand] = {}
        self._writers: dict[str, Callable[..., None]] = {}
        for product in PRODUCTS:
            self._add(product)
        for dtype in COPIED:
            self._writers[copy_name(dtype)] = self.copy
            self._writers[clear_name(dtype)] = self._clear
        for dtype, mask in itertools.product(EXCHANGED, MASKS):
            exchange = functools.partial(self._exchange, mask)
            self._writers[exchange_name(dtype, mask)] = exchange

    def _add(self, product: FragmentProduct) -> None:
        name, writers = product.name, self._writers
        writers[name] = functools.partial(self._multiply, product)
        writers[zero_name(name)] = self._zero
        writers[store_name(name)] = functools.partial(self._store, product)
        writers[own_name(name)] = self._own
        writers[put_name(name)] = self._put
        writers[factor_name(name)] = self._factor
        for side, across in itertools.product((0, 1), (False, True)):
            load = functools.partial(self._load, product, side, across)
            writers[load_name(name, side, across)] = load

    def allocate(self, buffer: Buffer) -> None:
        nbytes = number(buffer.nbytes) // SUBGROUP_SIZE
        slot = self._b.hoisted(0, instr.STACK, PTR, (), (nbytes, buffer.name))
        self._slots[buffer.name] = slot

    def write(self, call: Intrinsic) -> None:
        """Emit an intrinsic call. Raises InexpressibleError for an intrinsic that CUDA does not
        have."""
        if call.name not in self._writers:
            raise InexpressibleError(f"CUDA has no intrinsic {call.name}")
        self._writers[call.name](*call.operands)

    def _words(self, tile: Tile) -> list[Operand]:
        """Return the addresses of the 32-bit words of a fragment that the current thread holds."""
        buffer = tile.buffer
        at: Expr = e.index(0)
        for axis, (extent, index) in enumerate(zip(buffer.shape, tile.origin, strict=True)):
            if axis not in tile.axes:
                at = e.add(e.mul(at, extent), index)
        of_fragment = math.prod(number(buffer.shape[axis]) for axis in tile.axes)
        nbytes = of_fragment * buffer.dtype.nbytes // SUBGROUP_SIZE
        indices = self._expressions.indices
        form = indices.simplifier.linear(e.mul(at, nbytes))
        first = indices.address(self._slots[buffer.name], form, buffer.nbytes)
        return [self._b.offset(first, place) for place in range(0, nbytes, _WORD)]

    def _loaded(self, tile: Tile, type_: Type) -> list[Operand]:
        return [self._b.load(type_, word, _WORD) for word in self._words(tile)]

    def _keep(self, tile: Tile, values: Sequence[Operand]) -> None:
        for word, value in zip(self._words(tile), values, strict=True):
            self._b.store(value, word, _WORD)

    def _called(self, name: str, types: Sequence[Type], *operands: Operand) -> list[Operand]:
        """Emit a call of a warp-wide LLVM intrinsic that returns a struct; return the members of
        the struct."""
        result = self._b.effect(name, instr.struct_of(*types), *operands)
        return [self._b.part(result, at) for at in range(len(types))]

    def _zero(self, c: Tile) -> None:
        for word in self._words(c):
            self._b.store(instr.number_of(I32, 0), word, _WORD)

    def _multiply(self, product: FragmentProduct, c: Tile, a: Tile, b: Tile) -> None:
        """Emit a fragment product, as two mma instructions of eight columns each."""
        name, kind = _MMA[product.name]
        total = _TYPES[product.total]
        left, right, old = self._loaded(a, kind), self._loaded(b, kind), self._loaded(c, total)
        if product.rounding is UnaryOp.ROUND_TF32:
            left, right = ([self._b.call(_TO_TF32, I32, x) for x in side] for side in (left, right))
        half, new = len(right) // 2, []
        for side in (0, 1):
            own, sums = right[side * half :][:half], old[4 * side :][:4]
            new += self._called(f"llvm.nvvm.mma.{name}", [total] * 4, *left, *own, *sums)
        self._keep(c, new)

    def _load(
        self, product: FragmentProduct, side: int, across: bool, fragment: Tile, memory: Tile
    ) -> None:
        """Emit ldmatrix, which loads a factor from workgroup memory as several 8 × 8 matrices. Each
        thread passes the address of one 16-byte row of one of these matrices."""
        nbytes = product.depth * _COLUMNS * fragment.buffer.dtype.nbytes
        count = nbytes // SUBGROUP_SIZE // _WORD
        of_own, of_terms = (3, 4) if side == 0 or count == 2 else (4, 3)
        rows, chunks = (of_terms, of_own) if across else (of_own, of_terms)
        # With two matrices, all terms are in a single chunk, and the bit that selects it is not
        # used.
        unused = of_terms if count == 2 else None
        row = self._b.op(instr.AND, self._lane(), _number(7))
        if rows != unused:
            row = self._b.op(instr.ADD, row, self._bit(rows, 8))
        chunk = self._bit(chunks, 1) if chunks != unused else _number(0)
        place = self._chunk(memory, row, chunk)
        name = f"{_LDMATRIX}.x{count}{'.trans' if across else ''}.b16.p3"
        self._keep(fragment, self._called(name, [I32] * count, place))

    def _store(self, product: FragmentProduct, memory: Tile, c: Tile) -> None:
        """Emit the stores of totals: each thread has two pairs of adjacent totals in two rows."""
        total = _TYPES[product.total]
        values = self._loaded(c, total)
        group = self._b.op(instr.LSHR, self._lane(), _number(2))
        pair = self._b.op(instr.MUL, self._b.op(instr.AND, self._lane(), _number(3)), _number(8))
        for half in (0, 1):
            row = self._b.op(instr.ADD, group, _number(8 * half))
            base = self._moved(self._row(memory, row), pair)
            for side in (0, 1):
                both: Operand = instr.poison(total.of(2))
                for lane in (0, 1):
                    both = self._b.insert(both, values[4 * side + 2 * half + lane], lane)
                self._b.store(both, self._b.offset(base, 8 * _WORD * side), 2 * _WORD)

    def _own(self, own: Tile, c: Tile) -> None:
        """Emit the copy of the thread's elements of a fragment to an array of its own."""
        for value, place in zip(self._loaded(c, F32), self._elements(own, c), strict=True):
            self._b.store(value, place, _WORD)

    def _put(self, c: Tile, own: Tile) -> None:
        self._keep(c, [self._b.load(F32, place, _WORD) for place in self._elements(own, c)])

    def _factor(self, a: Tile, own: Tile) -> None:
        """Emit the conversion of elements of the thread's own to a factor."""
        dtype, words = a.buffer.dtype, self._words(a)
        each = _WORD // dtype.nbytes
        for at, place in enumerate(self._elements(own, a)):
            value = self._b.load(F32, place, _WORD)
            rounded = to_memory(self._b, Value(value, dtype))
            to = self._b.offset(words[at // each], at % each * dtype.nbytes)
            self._b.store(rounded, to, dtype.nbytes)

    def _elements(self, own: Tile, fragment: Tile) -> list[Operand]:
        """Return the addresses of the elements of the thread's own that a fragment has."""
        shape = (fragment.buffer.shape[axis] for axis in fragment.axes)
        count = math.prod(map(number, shape)) // SUBGROUP_SIZE
        first = self._expressions.address(own.buffer, own.origin)
        return [self._b.offset(first, _WORD * at) for at in range(count)]

    def _exchange(self, mask: int, to: Tile, source: Tile) -> None:
        """Emit a warp shuffle. Each thread receives the word of the thread whose number in the warp
        differs by the bit `mask`."""
        kind, name = (F32, "f32") if to.buffer.dtype is DType.F32 else (I32, "i32")
        addresses = [self._expressions.address(tile.buffer, tile.origin) for tile in (to, source)]
        word = self._b.load(kind, addresses[1], _WORD)
        operands = _number(_WHOLE_WARP), word, _number(mask), _number(SUBGROUP_SIZE - 1)
        other = self._b.effect(f"llvm.nvvm.shfl.sync.bfly.{name}", kind, *operands)
        self._b.store(other, addresses[0], _WORD)

    def are_choices(self, copy: Intrinsic, clear: Intrinsic) -> bool:
        """Check whether `copy` is an asynchronous copy to a tile, and `clear` sets the same tile to
        zero. The two branches of an If then become one instruction, which copies or clears."""
        dtype = copy.operands[0].buffer.dtype
        names = (copy_name(dtype), clear_name(dtype))
        return (copy.name, clear.name) == names and copy.operands[0] == clear.operands[0]

    def copy(self, target: Tile, source: Tile, holds: Operand | None = None) -> None:
        """Emit an asynchronous copy to the tile `target`. If `holds` is false, the tile is cleared
        instead. No branch is emitted, since it would diverge within a warp."""
        for tile in (target, source):
            if self._expressions.alignment(tile.buffer, tile.origin) % COPY_BYTES:
                raise InexpressibleError(f"a copy of {tile.buffer.name} may be misaligned")
        to, of = (self._expressions.address(t.buffer, t.origin) for t in (target, source))
        if holds is None:
            self._b.effect(_CP_ASYNC, instr.VOID, to, of)
        else:
            nbytes = self._b.choose(holds, _number(COPY_BYTES), _number(0))
            self._b.effect(f"{_CP_ASYNC}.s", instr.VOID, to, of, nbytes)

    def _clear(self, target: Tile) -> None:
        to = self._expressions.address(target.buffer, target.origin)
        nowhere = instr.zero(instr.pointer(1))
        self._b.effect(f"{_CP_ASYNC}.s", instr.VOID, to, nowhere, _number(0))

    def wait(self, most: int) -> None:
        """Commit the copies so far as a group, and wait until at most `most` groups are pending."""
        self._b.effect("llvm.nvvm.cp.async.commit.group", instr.VOID)
        self._b.effect("llvm.nvvm.cp.async.wait.group", instr.VOID, _number(most))

    def _chunk(self, memory: Tile, row: Operand, chunk: Operand) -> Operand:
        """Return the address of a 16-byte chunk in a row of a tile in shared memory, with the
        tile's swizzle applied."""
        buffer = memory.buffer
        swizzle = buffer.layout.swizzle if buffer.layout is not None else None
        if swizzle is None:
            return self._moved(self._row(memory, row), self._times(chunk, _CHUNK))
        each, indices = _CHUNK // buffer.dtype.nbytes, self._expressions.indices
        first = [indices.simplifier.linear(index) for index in memory.origin[-2:]]
        of_turns = swizzle.rows * swizzle.count
        if swizzle.chunk != each or of_turns & (of_turns - 1):
            raise InexpressibleError(f"the swizzle of {buffer.name} parts a row of a matrix")
        aligned = [
            indices.divisor(f, most) for f, most in zip(first, (of_turns, each), strict=True)
        ]
        if aligned != [of_turns, each]:
            raise InexpressibleError(f"a tile of {buffer.name} begins within a turn of its swizzle")
        plain = dataclasses.replace(buffer, layout=None)
        origin = (*memory.origin[:-1], e.index(0))
        start = self._row(dataclasses.replace(memory, buffer=plain, origin=origin), row)
        before = indices.value(e.floordiv(memory.origin[-1], each)).operand
        at = self._b.op(instr.ADD, self._b.convert(instr.TRUNC, before, I32), chunk)
        turn = self._b.op(instr.LSHR, row, _number(swizzle.rows.bit_length() - 1))
        turn = self._b.op(instr.AND, turn, _number(swizzle.count - 1))
        place = self._b.op(instr.XOR, at, turn)
        return self._moved(start, self._times(place, _CHUNK))

    def _times(self, value: Operand, factor: int) -> Operand:
        return self._b.op(instr.MUL, value, _number(factor))

    def _row(self, memory: Tile, row: Operand) -> Operand:
        """Return the address of a row of a tile in shared memory."""
        buffer = memory.buffer
        last = len(buffer.shape) - 1
        if not buffer.is_plain or memory.axes != (last - 1, last) or memory.steps:
            raise InexpressibleError(f"rows of {buffer.name} do not lie one after the other")
        step = number(buffer.shape[last]) * buffer.dtype.nbytes
        base = self._expressions.address(buffer, memory.origin)
        return self._moved(base, self._times(row, step))

    def _moved(self, base: Operand, nbytes: Operand) -> Operand:
        return self._b.offset(base, self._b.convert(instr.ZEXT, nbytes, instr.I64))

    def _lane(self) -> Operand:
        return self._b.call(_LANE, I32)

    def _bit(self, bit: int, weight: int) -> Operand:
        """Return a bit of the thread's number in its warp, multiplied by `weight`."""
        shifted = self._b.op(instr.LSHR, self._lane(), _number(bit))
        return self._b.op(instr.MUL, self._b.op(instr.AND, shifted, _number(1)), _number(weight))


def _number(value: int) -> Operand:
    return instr.number_of(I32, value)
