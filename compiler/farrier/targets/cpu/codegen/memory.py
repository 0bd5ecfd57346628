"""The emission of loads and stores: of one element, of a vector of consecutive elements, or lane by
lane.

A `guard` is the condition under which memory may be accessed: for loads in a branch of a Select,
and for stores under a condition that depends on the lane. A vector access uses it as the mask; a
scalar access replaces the address by a harmless one (the buffer's first element) if it is false.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from farrier.errors import CompilerError
from farrier.ir import instr
from farrier.ir.addresses import flatten
from farrier.ir.dim import Dim, Extent
from farrier.ir.expr import Buffer, Cast, Expr, Load
from farrier.ir.instr import I1, Operand, vector
from farrier.ir.linear import Linear
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
    """The emitter of the memory accesses of one function under construction."""

    def __init__(
        self, builder: Builder, bindings: Bindings, indices: Indices, registers: int
    ) -> None:
        self.b = builder
        self.bindings = bindings
        self.indices = indices
        self.guard: Value | None = None
        self.tile_vectors = 0  # The registers of register tiles.
        self._registers = registers
        self._places: dict[int, tuple[object, AddressExpr]] = {}
        # By buffer and indices.
        self._equal: dict[tuple[Buffer, tuple[Expr, ...]], AddressExpr] = {}
        self.bases: dict[str, Operand] = {}
        # Loads of this basic block, the least recently used first. The register tiles limit their
        # number, as each cached value takes a register.
        self._recent: dict[tuple[object, ...], Value] = {}
        self._evicted: set[tuple[object, ...]] = set()  # Since the last fence in this block.
        self._loaded: set[object] = set()  # The buffers of cached loads.

    def bind(self, name: str, pointer: Operand) -> None:
        """Set the address at which a buffer starts."""
        self.bases[name] = pointer
        self.forget(name)

    def base(self, buffer: Buffer) -> Operand:
        try:
            return self.bases[buffer.name]
        except KeyError:
            raise CompilerError(f"buffer {buffer.name} is used outside its Alloc") from None

    def forget(self, name: str | None = None) -> None:
        """Drop the cached loads of one buffer, or of all buffers. Called at a store, and at the
        start of a basic block."""
        if name is None:
            self._recent.clear()
            self._evicted.clear()
            self._loaded.clear()
        elif name in self._loaded:
            self._loaded.remove(name)
            for key in [key for key in self._recent if key[0] == name]:
                del self._recent[key]

    def load(self, node: Load) -> Value:
        """Emit a load from memory, or reuse an earlier one. Return its value, a scalar if the
        element is the same for all lanes."""
        buffer = node.buffer
        offset, const = self._place(node).resolve()
        guard = self.guard
        key: tuple[object, ...]
        if offset.irregular:
            if any(True for index in node.indices for _ in loads(index)):
                # The indices are loaded from memory that may change before the next access.
                return self._gather(node)
            unrolled = tuple(self.bindings.constants.items())
            key = (buffer.name, node.indices, unrolled, guard and guard.operand)
            return self._remembered(key, lambda: self._gather(node))
        pointer = self.indices.pointer(self.base(buffer), offset)
        # A load for a partial vector leaves the other lanes undefined, so only accesses of the same
        # width can reuse it.
        width = self.bindings.active if self.bindings.lane is not None and offset.stride else 1
        key = (buffer.name, pointer, const, offset.stride, width, guard and guard.operand)
        spread = self.bindings.lane is not None and offset.stride != 0
        return self._remembered(
            key, lambda: self._load(buffer, pointer, const, offset.stride), spread
        )

    def load_group(self, node: Load, loop: str, size: int) -> Value | None:
        """Return the `size` elements that the iterations of a loop read, as one i32 for each lane
        (the layout of dot-product operands). Return None if the elements are not adjacent or do not
        fill 32 bits, or if the machine requires alignment and they may not be aligned."""
        first = self._first_neighbour(node, loop, size)
        if first is None:
            return None
        if self.b.instructions.needs_alignment and not _is_word(*first):
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
        """Unpack integers of less than a byte that the iterations of `loop` read. `value` has the
        loaded bytes as one i32 for each lane; the result has one of the integers of each byte in
        the byte's place. Return None if the bit position within the byte differs from iteration to
        iteration."""
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
        """Load a tile of rows from memory into one value that holds the whole tile, such as an AMX
        tile register. An earlier load of the same tile is reused."""
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
        """Store a tile of rows from `value`, which holds the whole tile (such as an AMX tile
        register), to memory."""
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
        """Return the address (offset and constant) of the access `node` in the first iteration of
        `loop`, if the `size` iterations access adjacent elements that fill 32 bits together; else
        None."""
        constants, element = self.bindings.constants, node.buffer.dtype.nbytes
        accesses = []
        for number in range(size):
            constants[loop] = number
            accesses.append(self._place(node).resolve())
        del constants[loop]
        first, start = accesses[0]
        if first.irregular or any(offset[:3] != first[:3] for offset, _ in accesses):
            return None
        steps = [const - start for _, const in accesses]
        are_neighbours = steps == [number * element for number in range(size)]
        wide = size * element == DType.I32.nbytes
        return accesses[0] if are_neighbours and wide else None

    def is_group(self, node: Store, loop: str, size: int) -> bool:
        """Check whether the `size` iterations of a loop store adjacent elements that fill an i32,
        and the lanes of the vectorized loop store adjacent i32."""
        first = self._first_neighbour(node, loop, size)
        return first is not None and first[0].stride == DType.I32.nbytes

    def store_group(self, node: Store, loop: str, value: Value) -> None:
        """Store the elements of all iterations of a loop by one store. `value` contains them,
        concatenated to one i32 for each lane. The caller must have checked `is_group`."""
        self.bindings.constants[loop] = 0
        offset, const = self._place(node).resolve()
        del self.bindings.constants[loop]
        lanes = self.bindings.lanes
        self._store_at(node.buffer, offset, const, self.b.widen(value, lanes))
        self.forget(node.buffer.name)

    def _remembered(
        self, key: tuple[object, ...], load: Callable[[], Value], spread: bool = False
    ) -> Value:
        """Return the value of an earlier load with the same `key`, or else that of `load`. `spread`
        is true if each lane loads an element of its own."""
        value = self._recent.pop(key, None)
        if value is None:
            self._make_room(key, spread)
            value = load()
            self._loaded.add(key[0])
        self._recent[key] = value
        return value

    def _make_room(self, key: tuple[object, ...], spread: bool) -> None:
        """If all registers hold values of earlier loads, forget the least recently used of them, so
        that a repeated load is emitted again.

        LLVM might merge the repeated load with the first one, keep its value in a register in
        between, and spill another register. A fence, which takes no instruction, prevents that.
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
        """Emit a store of a value with the buffer's dtype; in a vectorized loop, each lane stores
        its own element."""
        buffer = node.buffer
        offset, const = self._place(node).resolve()
        size = buffer.dtype.nbytes
        lanes = self.bindings.lanes if self.bindings.lane is not None else 1
        if lanes > 1 and not offset.irregular and offset.stride == 0 and self.guard is None:
            if value.lanes > 1:
                raise CompilerError(f"lanes of a vectorized loop all store to one {buffer.name}")
            lanes = 1
        value = self.b.widen(value, lanes)
        # If the guard admits a single lane, its index may have become a constant.
        if offset.irregular or (lanes > 1 and offset.stride != size):
            self._scatter(node, value)
        else:
            self._store_at(buffer, offset, const, value)
        self.forget(buffer.name)

    def _store_at(self, buffer: Buffer, offset: Offset, const: Extent, value: Value) -> None:
        """Store the lanes of `value` to adjacent elements of a buffer, starting `offset` plus
        `const` after the start of the buffer."""
        pointer, size = self._at(buffer, offset, const), buffer.dtype.nbytes
        mask = self._mask(value.lanes)
        stored = to_memory(self.b, value)
        if mask is None:
            self.b.store(stored, pointer, size)
        else:
            self.b.put(instr.MASKED_STORE, (stored, pointer, mask.operand), size)

    def is_invariant(self, node: Store) -> bool:
        """Check whether all lanes store to the same address."""
        offset, _ = self._place(node).resolve()
        return not offset.irregular and offset.stride == 0

    def prefetch(self, node: Prefetch) -> None:
        """Emit a prefetch of one cache line; in a vectorized loop, of the line that the first lane
        accesses."""
        offset, const = self._place(node).resolve()
        if offset.irregular:
            return
        locality = {1: 3, 2: 2, 3: 1}[node.level]
        # The last byte of the element is prefetched: the address of the first one may equal the
        # value to which the loop's pointer advances, which LLVM would then compute here and keep in
        # a register.
        pointer = self._at(node.buffer, offset, const + node.buffer.dtype.nbytes - 1)
        self.b.put(instr.PREFETCH, (pointer,), locality)

    def _place(self, node: Load | Store | Prefetch) -> AddressExpr:
        """Return the address of the accessed element, in bytes from the start of its buffer."""
        entry = self._places.get(id(node))
        if entry is None:
            at = (node.buffer, node.indices)
            place = self._equal.get(at)
            if place is None:
                form = self._offset(*at)
                place = self._equal[at] = self.indices.place(form)
            entry = self._places[id(node)] = (node, place)
        return entry[1]

    def _offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Linear:
        """Return the offset of an element's first byte from the start of its buffer, as a linear
        form."""
        simplifier = self.indices.simplifier
        if shares_bytes(buffer):
            (at,) = shared_byte(buffer, indices, simplifier).byte.indices
            return simplifier.linear(at)
        return flatten(buffer, indices, simplifier, buffer.dtype.nbytes)

    def place_of(self, operand: RowsOperand) -> AddressExpr:
        """Return the address of a tile of rows."""
        entry = self._places.get(id(operand))
        if entry is None:
            entry = self._places[id(operand)] = (operand, self.indices.place(operand.place))
        return entry[1]

    def _at(self, buffer: Buffer, offset: Offset, const: Extent) -> Operand:
        return self._displaced(self.indices.pointer(self.base(buffer), offset), const)

    def _displaced(self, pointer: Operand, const: Extent) -> Operand:
        """Return `pointer` plus `const` bytes: the symbolic part is added in a register, and the
        number is left as a displacement that the instruction encodes."""
        if isinstance(const, Dim):
            fixed = dict(const.terms).get((), 0)
            size = self.indices.size(const - fixed)
            pointer, const = self.b.offset(pointer, size), fixed
        return self.b.offset(pointer, const) if const else pointer

    def _load(self, buffer: Buffer, pointer: Operand, const: Extent, stride: int) -> Value:
        """Load the elements `const` bytes after the pointer; the elements of successive lanes are
        `stride` bytes apart."""
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
        """Load one element, at the address `pointer`. If the guard is false, load the buffer's
        first element instead, since it is always accessible."""
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
        """Emit a boolean that is true if the condition holds in any lane within the loop's
        extent."""
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
        """Load `lanes` elements that are two elements apart, by two vector loads and a shuffle. The
        second vector ends at the last element that is needed, so that nothing beyond it is read."""
        size = buffer.dtype.nbytes
        kind = memory_type(buffer.dtype, lanes)
        low = self.b.load(kind, pointer, size)
        last = self._displaced(pointer, (lanes - 1) * size)
        high = self.b.load(kind, last, size)
        chosen = [2 * n if 2 * n < lanes else 2 * n + 1 for n in range(lanes)]
        text = self.b.shuffle(low, high, chosen)
        return from_memory(self.b, text, buffer.dtype, lanes)

    def _collect(self, buffer: Buffer, pointers: list[Operand]) -> Value:
        """Emit a load for each lane, from an address of its own. Return the elements as a
        vector."""
        lanes = self.bindings.lanes
        total: Operand = instr.poison(type_of(buffer.dtype, lanes))
        for lane, pointer in enumerate(pointers):
            element = self._scalar(buffer, pointer, lane)
            total = self.b.insert(total, element.operand, lane)
        return Value(total, buffer.dtype, lanes)

    def _gather(self, node: Load) -> Value:
        return self._collect(node.buffer, self._lane_pointers(node))

    def _lane_pointers(self, node: Load | Store) -> list[Operand]:
        """Return the address that each lane accesses, computed with the lane variable as a
        constant."""
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
        """Store each lane separately. Under a guard, each is a masked store of a vector with one
        lane."""
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
        """Return the mask of the lanes that may access memory: the lanes within the loop's extent
        for which the guard holds. Return None if all lanes may."""
        if lanes == 1:
            return None if self.guard is None else self.guard
        guard = None if self.guard is None else self.b.widen(self.guard, lanes)
        if self.bindings.active == lanes:
            return guard
        return self.b.both(guard, tail_mask(lanes, self.bindings.active))


def tail_mask(lanes: int, active: int) -> Value:
    """Return a mask of the first `active` lanes."""
    bits = (lane < active for lane in range(lanes))
    return Value(instr.lanes_of(I1.of(lanes), *bits), DType.BOOL, lanes)


def _is_word(offset: Offset, const: Extent) -> bool:
    """Check whether the address of each lane is a multiple of 4 from the start of a buffer."""
    steps = (offset.stride, const, *(term.coefficient for term in offset.terms))
    return all(step % DType.I32.nbytes == 0 for step in steps)
