"""Loads and stores: one element, a vector of consecutive elements, or lane by lane.

The `guard` is a condition under which memory may be touched, for a load in the branch of a Select
and for a store under a condition on the lane. It becomes a mask of a vector access, and the choice
of a harmless address (the buffer's first element) for a scalar one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from farrier.errors import CompilerError
from farrier.ir import instr
from farrier.ir.addresses import flatten
from farrier.ir.affine import Linear
from farrier.ir.dim import Dim, Extent
from farrier.ir.expr import Buffer, Cast, Expr, Load
from farrier.ir.instr import I1, Operand, vector
from farrier.ir.loop import Prefetch, Store
from farrier.ir.shared_bytes import shared_byte, shares_bytes
from farrier.ir.substitute import loads
from farrier.ir.types import DType
from farrier.targets.cpu.codegen.indices import AddressExpr, Bindings, Indices, Offset
from farrier.targets.cpu.codegen.tiles import RowsOperand
from farrier.targets.cpu.held_operands import FEWEST_HELD, SPARE_REGISTERS
from farrier.targets.llvm.arithmetic import from_memory, to_memory
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.values import Value, literal, memory_type, type_of


class Memory:
    """Accesses of one function under construction."""

    def __init__(
        self, builder: Builder, bindings: Bindings, indices: Indices, registers: int
    ) -> None:
        self.b = builder
        self.bindings = bindings
        self.indices = indices
        self.guard: Value | None = None
        self.tile_vectors = 0  # registers that register tiles take
        self._registers = registers
        self._places: dict[int, tuple[object, AddressExpr]] = {}
        self._equal: dict[tuple[Buffer, tuple[Expr, ...]], AddressExpr] = {}  # by what is accessed
        self.bases: dict[str, Operand] = {}
        # Loads of this basic block, the least recently used first. No more are remembered than the
        # register tiles leave room for: a value that is kept is a register that is taken.
        self._recent: dict[tuple[object, ...], Value] = {}
        self._evicted: set[tuple[object, ...]] = set()  # since the last fence in this block
        self._loaded: set[object] = set()  # The buffers of loads that may be remembered.

    def bind(self, name: str, pointer: Operand) -> None:
        """Say where a buffer begins."""
        self.bases[name] = pointer
        self.forget(name)

    def base(self, buffer: Buffer) -> Operand:
        try:
            return self.bases[buffer.name]
        except KeyError:
            raise CompilerError(f"buffer {buffer.name} is used outside its Alloc") from None

    def forget(self, name: str | None = None) -> None:
        """Drop remembered loads, of one buffer or all: at a store, and where a block starts."""
        if name is None:
            self._recent.clear()
            self._evicted.clear()
            self._loaded.clear()
        elif name in self._loaded:
            self._loaded.remove(name)
            for key in [key for key in self._recent if key[0] == name]:
                del self._recent[key]

    def load(self, node: Load) -> Value:
        """The value of a Load from memory, a scalar where it is the same in every lane."""
        buffer = node.buffer
        offset, const = self._place(node).resolve()
        guard = self.guard
        key: tuple[object, ...]
        if offset.irregular:
            if any(True for index in node.indices for _ in loads(index)):
                return self._gather(node)  # what the indices read may change before the next time
            unrolled = tuple(self.bindings.constants.items())
            key = (buffer.name, node.indices, unrolled, guard and guard.operand)
            return self._remembered(key, lambda: self._gather(node))
        pointer = self.indices.pointer(self.base(buffer), offset)
        # A tail's load leaves the lanes beyond it unset: it serves tails of the same width alone.
        width = self.bindings.active if self.bindings.lane is not None and offset.stride else 1
        key = (buffer.name, pointer, const, offset.stride, width, guard and guard.operand)
        spread = self.bindings.lane is not None and offset.stride != 0
        return self._remembered(
            key, lambda: self._load(buffer, pointer, const, offset.stride), spread
        )

    def load_group(self, node: Load, loop: str, size: int) -> Value | None:
        """The elements that `size` iterations of a loop read, one group a lane, as i32; None where
        they are not neighbours, or not as wide together."""
        first = self._first_neighbour(node, loop, size)
        if first is None:
            return None
        (offset, const), stride = first, first[0].stride
        buffer = dataclasses.replace(node.buffer, dtype=DType.I32)
        pointer = self.indices.pointer(self.base(buffer), offset)
        width = self.bindings.active if stride else 1
        guard = self.guard and self.guard.operand
        key = (buffer.name, pointer, const, stride, width, guard, "group")
        value = self._remembered(
            key, lambda: self._load(buffer, pointer, const, stride), bool(stride)
        )
        return self._codes(node, loop, value) if shares_bytes(node.buffer) else value

    def _codes(self, node: Load, loop: str, value: Value) -> Value | None:
        """The codes in a group of bytes that several share, one a byte; None if they do not lie
        alike in their bytes."""
        place = shared_byte(node.buffer, node.indices, self.indices.simplifier)
        assert isinstance(place.shift, Cast)
        self.bindings.constants[loop] = 0
        shift = self.indices.value(place.shift.operand)
        del self.bindings.constants[loop]
        if shift is None or shift.lanes > 1 or shift.const is None:
            return None
        text, lanes = value.operand, value.lanes
        if shift.const:
            by = literal(int(shift.const), DType.I32, lanes).operand
            text = self.b.op(instr.LSHR, text, by)
        mask = literal(int(place.mask.value) * 0x01010101, DType.I32, lanes).operand
        return Value(self.b.op(instr.AND, text, mask), DType.I32, lanes)

    def load_rows(self, operand: RowsOperand) -> Value:
        """A tile of rows, in the register that holds it whole."""
        buffer, registers = operand.buffer, operand.registers
        offset, const = self._first_row(operand)
        pointer = self.indices.pointer(self.base(buffer), offset)
        pitch = self.indices.size(operand.pitch)
        shape = operand.rows, operand.row_bytes

        def load() -> Value:
            at = self._displaced(pointer, const)
            return Value(registers.load(self.b, *shape, at, pitch), buffer.dtype)

        return self._remembered((buffer.name, pointer, const, pitch, shape), load)

    def store_rows(self, operand: RowsOperand, value: Operand) -> None:
        """Store a whole register of rows."""
        at, pitch = self._at(operand.buffer, *self._first_row(operand)), operand.pitch
        shape = operand.rows, operand.row_bytes
        operand.registers.store(self.b, *shape, at, self.indices.size(pitch), value)
        self.forget(operand.buffer.name)

    def _first_row(self, operand: RowsOperand) -> tuple[Offset, Extent]:
        offset, const = self.place_of(operand).resolve()
        if offset.irregular:
            raise CompilerError(f"a tile of {operand.buffer.name} begins at no one place")
        return offset, const

    def _first_neighbour(
        self, node: Load | Store, loop: str, size: int
    ) -> tuple[Offset, Extent] | None:
        """Where the first of `size` iterations of a loop reads or writes; None where these are no
        neighbours that make an i32 together."""
        constants, element = self.bindings.constants, node.buffer.dtype.nbytes
        found = []
        for number in range(size):
            constants[loop] = number
            found.append(self._place(node).resolve())
        del constants[loop]
        first, start = found[0]
        if first.irregular or any(offset[:3] != first[:3] for offset, _ in found):
            return None
        steps = [const - start for _, const in found]
        are_neighbours = steps == [number * element for number in range(size)]
        wide = size * element == DType.I32.nbytes
        return found[0] if are_neighbours and wide else None

    def is_group(self, node: Store, loop: str, size: int) -> bool:
        """Whether `size` iterations of a loop store an i32 together, and the lanes a vector."""
        first = self._first_neighbour(node, loop, size)
        return first is not None and first[0].stride == DType.I32.nbytes

    def store_group(self, node: Store, loop: str, value: Value) -> None:
        """Store what all iterations of a loop do, an i32 a lane; `is_group` holds of them."""
        self.bindings.constants[loop] = 0
        offset, const = self._place(node).resolve()
        del self.bindings.constants[loop]
        lanes = self.bindings.lanes
        self._store_at(node.buffer, offset, const, self.b.widen(value, lanes))
        self.forget(node.buffer.name)

    def _remembered(
        self, key: tuple[object, ...], load: Callable[[], Value], spread: bool = False
    ) -> Value:
        """The value of an earlier load that `key` says is the same, or of `load`; `spread`: each
        lane has an element of its own."""
        value = self._recent.pop(key, None)
        if value is None:
            self._make_room(key, spread)
            value = load()
            self._loaded.add(key[0])
        self._recent[key] = value
        return value

    def _make_room(self, key: tuple[object, ...], spread: bool) -> None:
        """Forget the load that was used longest ago if there is no register for one more.

        LLVM would make a load early that it finds to be the same as one that is forgotten, or a
        vector that neighbours an earlier one, keep its value for all that time, and spill: a fence
        that costs no instruction stands between.
        """
        room = self._registers - self.tile_vectors - SPARE_REGISTERS
        is_full = len(self._recent) >= max(room, FEWEST_HELD)
        fenced = key in self._evicted or (is_full and spread)
        if is_full:
            oldest = next(iter(self._recent))
            del self._recent[oldest]
            self._evicted.add(oldest)
        if fenced:
            self.b.put(instr.FENCE, ())
            self._evicted.clear()

    def store(self, node: Store, value: Value) -> None:
        """Store a value of the buffer's dtype, in a vectorized loop one element a lane."""
        buffer = node.buffer
        offset, const = self._place(node).resolve()
        size = buffer.dtype.nbytes
        lanes = self.bindings.lanes if self.bindings.lane is not None else 1
        if lanes > 1 and not offset.irregular and offset.stride == 0 and self.guard is None:
            if value.lanes > 1:
                raise CompilerError(f"lanes of a vectorized loop all store to one {buffer.name}")
            lanes = 1
        value = self.b.widen(value, lanes)
        # A guard that lets one lane pass may have made its index one number.
        if offset.irregular or (lanes > 1 and offset.stride != size):
            self._scatter(node, value)
        else:
            self._store_at(buffer, offset, const, value)
        self.forget(buffer.name)

    def _store_at(self, buffer: Buffer, offset: Offset, const: Extent, value: Value) -> None:
        """Stores neighbours, one a lane of the value."""
        pointer, size = self._at(buffer, offset, const), buffer.dtype.nbytes
        mask = self._mask(value.lanes)
        stored = to_memory(self.b, value)
        if mask is None:
            self.b.store(stored, pointer, size)
        else:
            self.b.put(instr.MASKED_STORE, (stored, pointer, mask.operand), size)

    def is_invariant(self, node: Store) -> bool:
        """Whether the address is the same in every lane."""
        offset, _ = self._place(node).resolve()
        return not offset.irregular and offset.stride == 0

    def prefetch(self, node: Prefetch) -> None:
        """A hint to fetch a cache line, the first lane's in a vectorized loop."""
        offset, const = self._place(node).resolve()
        if offset.irregular:
            return
        locality = {1: 3, 2: 2, 3: 1}[node.level]
        # Its last byte: the first one's address may be where the loop's pointer moves on to, which
        # would be computed here, for both, and kept in a register until there.
        pointer = self._at(node.buffer, offset, const + node.buffer.dtype.nbytes - 1)
        self.b.put(instr.PREFETCH, (pointer,), locality)

    def _place(self, node: Load | Store | Prefetch) -> AddressExpr:
        """Where a node's element lies, in bytes from the beginning of its buffer."""
        known = self._places.get(id(node))
        if known is None:
            at = (node.buffer, node.indices)
            place = self._equal.get(at)
            if place is None:
                form = self._offset(*at)
                place = self._equal[at] = self.indices.place(form)
            known = self._places[id(node)] = (node, place)
        return known[1]

    def _offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Linear:
        """The first byte of an element, from the beginning of its buffer."""
        simplifier = self.indices.simplifier
        if shares_bytes(buffer):
            (at,) = shared_byte(buffer, indices, simplifier).byte.indices
            return simplifier.linear(at)
        return flatten(buffer, indices, simplifier, buffer.dtype.nbytes)

    def place_of(self, operand: RowsOperand) -> AddressExpr:
        """Where a tile of rows begins."""
        known = self._places.get(id(operand))
        if known is None:
            known = self._places[id(operand)] = (operand, self.indices.place(operand.place))
        return known[1]

    def _at(self, buffer: Buffer, offset: Offset, const: Extent) -> Operand:
        return self._displaced(self.indices.pointer(self.base(buffer), offset), const)

    def _displaced(self, pointer: Operand, const: Extent) -> Operand:
        """`pointer` plus bytes: a size in a register, and the number that an instruction holds."""
        if isinstance(const, Dim):
            fixed = dict(const.terms).get((), 0)
            size = self.indices.size(const - fixed)
            pointer, const = self.b.offset(pointer, size), fixed
        return self.b.offset(pointer, const) if const else pointer

    def _load(self, buffer: Buffer, pointer: Operand, const: Extent, stride: int) -> Value:
        """What lies `const` bytes behind the pointer, and `stride` from lane to lane."""
        size = buffer.dtype.nbytes
        lanes = self.bindings.lanes
        if self.bindings.lane is None or stride == 0:
            return self._scalar(buffer, self._displaced(pointer, const))
        mask = self._mask(lanes)
        at = self._displaced(pointer, const)
        if stride == size:
            return self._vector(buffer, at, mask)
        if stride == 2 * size and mask is None and buffer.dtype is not DType.BOOL:
            return self._every_other(buffer, at, lanes)
        active = range(self.bindings.active)
        return self._collect(
            buffer, [self._displaced(pointer, const + lane * stride) for lane in active]
        )

    def _scalar(self, buffer: Buffer, pointer: Operand, lane: int | None = None) -> Value:
        """One element; where the guard fails, the buffer's first instead."""
        guard = self.guard
        if guard is not None:
            if guard.lanes > 1 and lane is not None:
                condition = self.b.extract(guard.operand, lane)
            else:
                condition = self.in_any_lane(guard).operand
            first = self.base(buffer)
            pointer = self.b.choose(condition, pointer, first)
        loaded = self.b.load(memory_type(buffer.dtype), pointer, buffer.dtype.nbytes)
        return from_memory(self.b, loaded, buffer.dtype, 1)

    def in_any_lane(self, condition: Value) -> Value:
        """Whether a condition holds in a lane that the loop has; those beyond hold anything."""
        lanes, active = condition.lanes, self.bindings.active
        if lanes == 1:
            return condition
        if active < lanes:
            never = literal(False, DType.BOOL, lanes)
            condition = self.b.select(tail_mask(lanes, active), condition, never)
        bits = self.b.bitcast(condition.operand, vector(f"i{lanes}"))
        return Value(self.b.icmp("ne", bits, instr.number_of(bits.type, 0)), DType.BOOL)

    def _vector(self, buffer: Buffer, pointer: Operand, mask: Value | None) -> Value:
        lanes, size = self.bindings.lanes, buffer.dtype.nbytes
        kind = memory_type(buffer.dtype, lanes)
        if mask is None:
            loaded = self.b.load(kind, pointer, size)
        else:
            loaded = self.b.emit(instr.MASKED_LOAD, kind, (pointer, mask.operand), size)
        return from_memory(self.b, loaded, buffer.dtype, lanes)

    def _every_other(self, buffer: Buffer, pointer: Operand, lanes: int) -> Value:
        """Elements 0, 2, 4, …: two vectors, the second ending at the last element that is wanted,
        and a shuffle; nothing beyond it is touched."""
        size = buffer.dtype.nbytes
        kind = memory_type(buffer.dtype, lanes)
        low = self.b.load(kind, pointer, size)
        last = self._displaced(pointer, (lanes - 1) * size)
        high = self.b.load(kind, last, size)
        chosen = [2 * n if 2 * n < lanes else 2 * n + 1 for n in range(lanes)]
        text = self.b.shuffle(low, high, chosen)
        return from_memory(self.b, text, buffer.dtype, lanes)

    def _collect(self, buffer: Buffer, pointers: list[Operand]) -> Value:
        """One element a lane, from its own address."""
        lanes = self.bindings.lanes
        total: Operand = instr.poison(type_of(buffer.dtype, lanes))
        for lane, pointer in enumerate(pointers):
            element = self._scalar(buffer, pointer, lane)
            total = self.b.insert(total, element.operand, lane)
        return Value(total, buffer.dtype, lanes)

    def _gather(self, node: Load) -> Value:
        return self._collect(node.buffer, self._lane_pointers(node))

    def _lane_pointers(self, node: Load | Store) -> list[Operand]:
        """The address of each lane, found with the lane variable as a constant."""
        bindings = self.bindings
        lane = bindings.lane
        assert lane is not None
        pointers = []
        bindings.lane = None
        try:
            for number in range(bindings.active):
                bindings.constants[lane] = number
                pointers.append(self._at(node.buffer, *self._place(node).resolve()))
        finally:
            del bindings.constants[lane]
            bindings.lane = lane
        return pointers

    def _scatter(self, node: Store, value: Value) -> None:
        """Stores lane by lane, under a guard as masked vectors of one."""
        size = node.buffer.dtype.nbytes
        for lane, pointer in enumerate(self._lane_pointers(node)):
            text = self.b.extract(value.operand, lane)
            element = to_memory(self.b, Value(text, value.dtype))
            if self.guard is None:
                self.b.store(element, pointer, size)
                continue
            guard = self.b.widen(self.guard, self.bindings.lanes)
            bit = self.b.extract(guard.operand, lane)
            single, mask = self.b.single(element), self.b.single(bit)
            self.b.put(instr.MASKED_STORE, (single, pointer, mask), size)

    def _mask(self, lanes: int) -> Value | None:
        """Which lanes may touch memory: those within the loop's extent and the guard."""
        if lanes == 1:
            return None if self.guard is None else self.guard
        guard = None if self.guard is None else self.b.widen(self.guard, lanes)
        if self.bindings.active == lanes:
            return guard
        return self.b.both(guard, tail_mask(lanes, self.bindings.active))


def tail_mask(lanes: int, active: int) -> Value:
    """The first `active` lanes."""
    bits = (lane < active for lane in range(lanes))
    return Value(instr.lanes_of(I1.of(lanes), *bits), DType.BOOL, lanes)
