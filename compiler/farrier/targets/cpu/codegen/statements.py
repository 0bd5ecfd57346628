"""The translation of the statements of a lowered loop function to instructions, in one pass over
them.

An unrolled loop is emitted once for each iteration. A vectorized loop is emitted once, with vectors
as wide as its extent rounded up to a power of two; the excess lanes must not access memory, so
their loads and stores are masked. If the loop's body allocates memory for each lane, it is unrolled
instead. A serial loop passes the values of register tiles from iteration to iteration (as phis).
The body of a parallel loop becomes a function of its own, which receives values of the enclosing
function in a context struct.
"""

from __future__ import annotations

import dataclasses
from typing import assert_never

from farrier.errors import CompilerError
from farrier.intrinsics import Dot
from farrier.intrinsics.dot import factors_of, held_as
from farrier.ir import instr
from farrier.ir.dim import as_extent, bounds
from farrier.ir.dim import number as static
from farrier.ir.expr import BinaryOp, Load, MemoryScope, less
from farrier.ir.instr import (
    I1,
    I64,
    PTR,
    Branch,
    Carried,
    Joined,
    Loop,
    Operand,
    Statement,
    Variable,
)
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.shared_bytes import exchange, shares_bytes
from farrier.targets.cpu.codegen import workspace
from farrier.targets.cpu.codegen.captures import CONTEXT, Captures
from farrier.targets.cpu.codegen.expressions import Expressions
from farrier.targets.cpu.codegen.indices import Bindings
from farrier.targets.cpu.codegen.memory import tail_mask
from farrier.targets.cpu.codegen.module import Module
from farrier.targets.cpu.codegen.reductions import horizontal
from farrier.targets.cpu.codegen.registers import Piece, Tiles
from farrier.targets.cpu.codegen.tiles import RowsCall, RowsOperand
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.llvm.arithmetic import binary, cast, joined
from farrier.targets.llvm.builder import Builder, Instructions
from farrier.targets.llvm.values import Value

_SIZES = "sizes!"  # No buffer can have this name.
_WORD = 8  # The bytes of a pointer or a size.
_ARGS, _POOL = Variable(PTR, "args"), Variable(PTR, "pool")


def instructions_of(
    function: Function, target: CpuTarget, instructions: Instructions
) -> list[instr.Function]:
    """Return the kernel of a loop function as instructions, followed by the bodies of its parallel
    loops."""
    module = Module(function, target, instructions)
    kernel = _Emitter(module, None)
    kernel.emit(function.body)
    success = instr.number_of(instr.I32, 0)
    entry = instr.Function(function.name, (_ARGS, _POOL), kernel.b.body, success, True)
    kernel.expressions.close()
    return [entry, *module.bodies]


class _Emitter:
    """The emitter of one function's statements: those of the kernel, or of a parallel loop's
    body."""

    def __init__(self, module: Module, outer: _Emitter | None) -> None:
        self.module = module
        self.target = module.target
        self.b = Builder(module.instructions)
        self.bindings = Bindings()
        self.expressions = Expressions(self.b, self.bindings, module.simplifier, module.target)
        self.memory = self.expressions.memory
        self.registers = self.expressions.registers
        self.outer = outer
        self.pool: Operand = _POOL
        self.worker: Operand = instr.index(0)
        self.not_empty: set[str] = (
            set() if outer is None else set(outer.not_empty)
        )  # loops, if ever
        if outer is None:
            self._bind_arguments()

    def emit(self, stmt: Stmt) -> None:
        match stmt:
            case Block(parts):
                for part in parts:
                    self.emit(part)
            case Store():
                self._store(stmt)
            case For():
                self._for(stmt)
            case Alloc():
                self._alloc(stmt)
            case If():
                self._if(stmt)
            case While():
                self._while(stmt)
            case Prefetch():
                self.memory.prefetch(stmt)
            case Intrinsic():
                self._intrinsic(stmt)
            case Barrier():
                raise CompilerError("the threads of a CPU meet at no barrier")
            case _:
                assert_never(stmt)

    # -- buffers

    def _bind_arguments(self) -> None:
        """Load all argument pointers and sizes at the start of the function."""
        names = list(self.module.params)
        sizes = workspace.sizes_of(self.module.function)
        if sizes:
            names.append(_SIZES)
        if self.module.workspace.shared:
            names.append(workspace.SHARED)
        if self.module.workspace.per_worker:
            names.append(workspace.SLICES)
        scopes = {param.name: param.scope for param in self.module.function.params}
        scopes |= {workspace.SHARED: MemoryScope.WORKSPACE, workspace.SLICES: MemoryScope.LOCAL}
        for number, name in enumerate(names):
            kind = self.b.pointer(scopes.get(name))
            pointer = self.b.hoisted(0, instr.LOAD, kind, (self._word(_ARGS, number),), _WORD)
            self.memory.bind(name, pointer)
        for number, symbol in enumerate(sizes):
            at = self._word(self.memory.bases[_SIZES], number)
            value = self.b.hoisted(0, instr.LOAD, I64, (at,), _WORD)
            self.bindings.dynamic[symbol.name] = (0, value)
        for size in self.module.function.sizes:
            self.bindings.dynamic[size.name] = (0, self.expressions.indices.size(size.extent))

    def _word(self, base: Operand, number: int) -> Operand:
        """Return the address of the 8-byte word with this number after `base`."""
        return self._behind(base, instr.index(_WORD * number)) if number else base

    def _behind(self, base: Operand, offset: Operand) -> Operand:
        """Return `base` plus `offset` bytes, computed at the start of the function."""
        return self.b.hoisted(0, instr.OFFSET, base.type, (base, offset))

    def _alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        if buffer.scope is MemoryScope.REGISTER:
            self.registers.tiles[buffer.name] = {}
            self.emit(stmt.body)
            del self.registers.tiles[buffer.name]
            self._count_tiles()
            return
        self.memory.bind(buffer.name, self._room(stmt))
        self.emit(stmt.body)

    def _room(self, stmt: Alloc) -> Operand:
        """Return the address of an Alloc's memory, on the stack or in the workspace."""
        buffer, plan = stmt.buffer, self.module.workspace
        if buffer.scope is MemoryScope.LOCAL and buffer.name not in plan.per_worker:
            size = plan.on_stack[buffer.name]
            # The name makes buffers of one size different instructions.
            kind = self.b.pointer(buffer.scope)
            return self.b.hoisted(0, instr.STACK, kind, (), (size, buffer.name))
        if buffer.scope is MemoryScope.WORKSPACE:
            base = self.memory.base(dataclasses.replace(buffer, name=workspace.SHARED))
            offset = self.expressions.indices.size(plan.shared[buffer.name])
        else:
            slices = self.memory.base(dataclasses.replace(buffer, name=workspace.SLICES))
            step = self.expressions.indices.size(as_extent(workspace.SLICE_STEP))
            slice_at = self.b.hoisted(0, instr.MUL, I64, (self.worker, step))
            base = self._behind(slices, slice_at)
            offset = self.expressions.indices.size(plan.per_worker[buffer.name])
        return self._behind(base, offset)

    def _count_tiles(self) -> None:
        self.memory.tile_vectors = self.registers.vectors

    # -- stores

    def _store(self, stmt: Store) -> None:
        bindings = self.bindings
        if shares_bytes(stmt.buffer):
            stmt = exchange(stmt, self.expressions.indices.simplifier)
        if bindings.lane is not None:
            reduction = self.module.reduction(stmt)
            if reduction is not None and self._is_invariant(stmt):
                op, addend = reduction
                part = self.expressions.evaluate(addend)
                if part.lanes == 1:
                    part = self.b.widen(part, bindings.lanes)
                mask = self.memory.guard
                if bindings.active < bindings.lanes:
                    mask = self.b.both(mask, tail_mask(bindings.lanes, bindings.active))
                total = horizontal(self.b, op, part, mask)
                self._store_scalar(stmt, op, total)
                return
        value = cast(self.b, stmt.buffer.dtype, self.expressions.evaluate(stmt.value))
        self._store_value(stmt, value)

    def _store_value(self, stmt: Store, value: Value) -> None:
        """Store a value of the buffer's dtype, in a register tile or in memory."""
        if stmt.buffer.scope is MemoryScope.REGISTER:
            self._store_register(stmt, value)
        else:
            self.memory.store(stmt, value)

    def _is_invariant(self, stmt: Store) -> bool:
        """Check whether all lanes store to the same element."""
        if stmt.buffer.scope is MemoryScope.REGISTER:
            return self.expressions.register_range(stmt)[1] == 0
        return self.memory.is_invariant(stmt)

    def _store_scalar(self, stmt: Store, op: BinaryOp, total: Value) -> None:
        """Combine the horizontal reduction `total` with the old value of the stored element, and
        store it."""
        guard, self.memory.guard = self.memory.guard, None
        old = self.expressions.evaluate(self.module.old(stmt))
        value = binary(self.b, op, old, total)
        if stmt.buffer.scope is MemoryScope.REGISTER:
            first, _ = self.expressions.register_range(stmt)
            self.registers.write(stmt.buffer.name, first, Piece(value, 1))
        else:
            self.memory.store(stmt, value)
        self.memory.guard = guard

    def _store_register(self, stmt: Store, value: Value) -> None:
        first, stride = self.expressions.register_range(stmt)
        bindings, registers, name = self.bindings, self.registers, stmt.buffer.name
        guard = self.memory.guard
        if name not in registers.tiles:
            raise CompilerError(f"register buffer {name} is used outside its Alloc")
        if bindings.lane is None or stride == 0:
            if value.lanes > 1:
                raise CompilerError(f"lanes of a vectorized loop all store to one {name}")
            old = None if guard is None else registers.find(name, first, 1, 1, 1)
            if guard is not None and old is not None:
                value = self.b.select(self.memory.in_any_lane(guard), value, old)
            registers.write(name, first, Piece(value, 1))
            return
        value = self.b.widen(value, bindings.lanes)
        if guard is not None:
            old = registers.find(name, first, bindings.active, stride, bindings.lanes)
            if old is not None:
                value = self.b.select(guard, value, old)
        before = len(registers.tiles[name])
        registers.write(name, first, Piece(value, bindings.active, stride))
        if len(registers.tiles[name]) != before:
            self._count_tiles()

    # -- loops

    def _for(self, loop: For) -> None:
        kind = loop.kind
        if loop.extent == 0:
            return
        is_fixed = type(loop.extent) is int
        if not is_fixed and bounds(loop.extent)[0] < 1 and loop.var not in self.not_empty:
            self._unless_empty(loop)
        elif kind is LoopKind.VECTORIZED and loop.extent != 1 and self.module.is_lockstep(loop):
            self._vectorized(loop)
        elif kind in (LoopKind.VECTORIZED, LoopKind.UNROLLED) or loop.extent == 1:
            self._unrolled(loop)
        elif kind is LoopKind.DOT:
            self._dot(loop)
        elif kind is LoopKind.GROUP:
            self._group(loop)
        elif kind is LoopKind.PARALLEL and self.outer is None and self.b.instructions.has_pool:
            self._parallel(loop)
        else:
            # Within a parallel loop, all threads are busy already, so an inner loop is serial.
            self._serial(loop, instr.index(0), self.expressions.indices.size(loop.extent))

    def _unless_empty(self, loop: For) -> None:
        """Emit a loop under a test that it has an iteration, as emitted loops test only at the end
        of each iteration."""
        condition = self.expressions.evaluate(less(0, loop.extent))
        self.not_empty.add(loop.var)
        self._branch(condition, If(less(0, loop.extent), loop))
        self.not_empty.remove(loop.var)

    def _unrolled(self, loop: For) -> None:
        constants = self.bindings.constants
        for number in range(static(loop.extent)):
            constants[loop.var] = number
            self.emit(loop.body)
        del constants[loop.var]

    def _dot(self, loop: For) -> None:
        """Emit all products of a loop as one dot-product instruction of the target, or unroll the
        loop if no such instruction fits."""
        store = loop.body
        groups = self._groups(loop, store) if isinstance(store, Store) else None
        if groups is None or not isinstance(store, Store):
            self._unrolled(loop)
            return
        dot, left, right = groups
        lanes = self.bindings.lanes
        old = self.expressions.evaluate(self.module.old(store))
        operands = (self.b.widen(value, lanes).operand for value in (old, left, right))
        total = Value(dot.emit(self.b, lanes, *operands), dot.total, lanes)
        self._store_value(store, total)

    def _groups(self, loop: For, store: Store) -> tuple[Dot, Value, Value] | None:
        """Return three values for a loop that sums products into `store`: the dot-product
        instruction of the target that computes them, and its two operands. Return None if no
        instruction fits."""
        factors = factors_of(store)
        if factors is None:
            return None
        left, right = factors
        kinds = right.buffer.dtype, store.buffer.dtype
        dots = (self.target.dot_of(held, *kinds) for held in held_as(left.buffer.dtype))
        dot = next((dot for dot in dots if dot is not None), None)
        if dot is None or dot.group != loop.extent or self.bindings.lanes not in dot.lanes:
            return None
        factor, other = (self._factor(load, loop.var, dot.group) for load in factors)
        return None if factor is None or other is None else (dot, factor, other)

    def _factor(self, load: Load, loop: str, size: int) -> Value | None:
        """Return the elements that the loop reads by `load`, a group of 32 bits for each lane; None
        if they are not adjacent."""
        if load.buffer.scope is MemoryScope.REGISTER:
            return self._group_in_register(load, loop, size)
        value = self.memory.load_group(load, loop, size)
        return None if value is None else self.b.widen_group(value, self.bindings.lanes)

    def _group_in_register(self, load: Load, loop: str, size: int) -> Value | None:
        """Return the elements of a register tile that `load` reads in the iterations of the loop,
        as one i32 that is equal in all lanes. Return None if they are not adjacent lanes of a
        vector."""
        constants, ranges = self.bindings.constants, []
        for number in range(size):
            constants[loop] = number
            ranges.append(self.expressions.register_range(load))
        del constants[loop]
        (first, _), (second, _), *_ = ranges
        stride = second - first
        if stride < 1 or ranges != [(first + number * stride, 0) for number in range(size)]:
            return None
        return self.registers.find_group(load.buffer.name, first, size, stride)

    def _group(self, loop: For) -> None:
        """Emit the stores of a loop as one store of i32 if the elements are adjacent, else unroll
        the loop. If the stored elements are themselves adjacent in memory, they are loaded as i32
        too."""
        store, size = loop.body, loop.extent
        assert isinstance(store, Store)
        assert isinstance(size, int)
        in_memory = store.buffer.scope is not MemoryScope.REGISTER
        if not in_memory or not self.memory.is_group(store, loop.var, size):
            self._unrolled(loop)
            return
        value, read = None, store.value
        in_memory = isinstance(read, Load) and read.buffer.scope is not MemoryScope.REGISTER
        if isinstance(read, Load) and in_memory and read.buffer.dtype is store.buffer.dtype:
            value = self.memory.load_group(read, loop.var, size)
        if value is None:
            constants, elements = self.bindings.constants, []
            for number in range(size):
                constants[loop.var] = number
                elements.append(
                    cast(self.b, store.buffer.dtype, self.expressions.evaluate(store.value))
                )
            del constants[loop.var]
            value = joined(self.b, elements, self.bindings.lanes)
        self.memory.store_group(store, loop.var, value)

    def _vectorized(self, loop: For) -> None:
        bindings = self.bindings
        bindings.lane, bindings.active = loop.var, static(loop.extent)
        bindings.lanes = 1 << (bindings.active - 1).bit_length()
        self.emit(loop.body)
        bindings.lane, bindings.active, bindings.lanes = None, 1, 1

    def _serial(self, loop: For, first: Operand, end: Operand) -> None:
        """Emit a loop from `first` to `end` with its test at the end of an iteration; its extent is
        at least one."""
        b, carried = self.b, self._carried(loop.body)
        number = b.labels(2)
        variable, from_zero = b.variable(I64, f"i.{loop.var}."), first is instr.index(0)
        self.memory.forget()
        with b.nested() as body:
            scope_depth = len(b.scopes)
            # A loop that sums in registers reads two or three streams, so advancing pointers is
            # cheap; other loops would need more additions.
            scope = b.open_scope(variable if carried and from_zero else None)
            self.bindings.dynamic[loop.var] = (scope_depth, variable)
            self.bindings.era += 1
            variables = self._renamed(carried)
            self.emit(loop.body)
            passed = self._passed(carried, variables)
            for (start, step), pointer in scope.stepped.items():
                size = self.expressions.indices.size(step)
                moved = b.emit(instr.OFFSET, pointer.type, (pointer, size))
                passed.append(Carried(pointer, start, moved))
            following = b.emit(instr.ADD, I64, (variable, instr.index(1)), "nuw nsw")
            passed.append(Carried(variable, first, following))
            if b.instructions.counts_loops and from_zero:
                # Counting down to zero makes the subtraction the comparison.
                left = b.variable(I64, "left")
                fewer = b.emit(instr.ADD, I64, (left, instr.index(-1)), "nsw")
                passed.append(Carried(left, end, fewer))
                again = b.emit(instr.ICMP, I1, (fewer, instr.index(0)), "ne")
            else:
                again = b.emit(instr.ICMP, I1, (following, end), "slt")
            b.close_scope()
        b.body.append(Loop(passed, body, again, number))
        del self.bindings.dynamic[loop.var]
        self.bindings.era += 1
        self.memory.forget()

    def _while(self, stmt: While) -> None:
        """Emit a while loop, with its test at the start of each iteration."""
        b, registers = self.b, self.registers
        carried = self._carried(stmt.body)
        number = b.labels(3)
        self.memory.forget()
        with b.nested() as test:
            variables = self._renamed(carried)
            at_test = registers.snapshot(sorted(self.module.stored(stmt.body)))
            condition = self.expressions.evaluate(stmt.condition)
        with b.nested() as body:
            self.emit(stmt.body)
            passed = self._passed(carried, variables)
        b.body.append(instr.While(passed, test, condition.operand, body, number))
        self.memory.forget()
        registers.tiles.update(at_test)

    def _carried(self, body: Stmt) -> list[tuple[str, int, Piece]]:
        """Return the pieces of register tiles that an iteration of `body` passes to the next:
        (buffer, element number, piece)."""
        names = sorted(self.module.stored(body))
        tiles = self.registers.snapshot(names)
        return [(name, at, piece) for name, tile in tiles.items() for at, piece in tile.items()]

    def _renamed(self, carried: list[tuple[str, int, Piece]]) -> list[Variable]:
        """Replace the value of each carried piece by a new loop variable; return the variables."""
        variables = []
        for name, number, piece in carried:
            variable = self.b.variable(piece.value.type, "acc")
            variables.append(variable)
            value = piece.value.held_in(variable)
            self.registers.tiles[name][number] = piece._replace(value=value)
        return variables

    def _passed(
        self, carried: list[tuple[str, int, Piece]], variables: list[Variable]
    ) -> list[Carried]:
        """Return the carried variables of a loop with their initial values and their values at the
        end of the body, which is the current position."""
        passed = []
        for variable, (name, number, piece) in zip(variables, carried, strict=True):
            value, width, stride = piece
            last = self.registers.find(name, number, width, stride, value.lanes)
            following = instr.poison(value.type) if last is None else last.operand
            passed.append(Carried(variable, value.operand, following))
        return passed

    def _parallel(self, loop: For) -> None:
        """Emit a parallel loop: outline its body as a function, fill the context struct, and pass
        both to the thread pool."""
        written = self.module.stored(loop.body) & self.registers.tiles.keys()
        if written:
            raise CompilerError(
                f"parallel loop {loop.var} writes outer registers {sorted(written)}"
            )
        body = _Emitter(self.module, self)
        captures = Captures(self.b, self.bindings, self.memory, self.registers, body.b)
        captures.attach(body.bindings, body.memory, body.registers)
        begin, end, worker = (Variable(I64, name) for name in ("begin", "end", "worker"))
        body.worker, body.pool = worker, instr.zero(PTR)
        body._serial(loop, begin, end)
        name = self.module.next_body()
        outlined = instr.Function(name, (CONTEXT, begin, end, worker), body.b.body, None)
        self.module.bodies.append(outlined)
        body.expressions.close()
        context = captures.store(name)
        run = self.b.hoisted(0, instr.LOAD, PTR, (self.pool,), _WORD)
        extent = self.expressions.indices.size(loop.extent)
        self.b.put(instr.CALL, (run, self.pool, instr.symbol(name), context, extent))
        self.memory.forget()

    # -- conditions

    def _if(self, stmt: If) -> None:
        condition = self.expressions.evaluate(stmt.condition)
        if condition.const is not None:
            if condition.const:
                self.emit(stmt.then)
            elif stmt.otherwise is not None:
                self.emit(stmt.otherwise)
        elif condition.lanes > 1 or self.bindings.lane is not None:
            self._masked(condition, stmt)
        else:
            self._branch(condition, stmt)

    def _masked(self, condition: Value, stmt: If) -> None:
        """Emit an If whose condition differs between the lanes of a vectorized loop. Both branches
        are emitted; the condition, or its negation for the second branch, masks their memory
        accesses in each lane."""
        memory, b = self.memory, self.b
        outer = memory.guard
        condition = b.widen(condition, self.bindings.lanes)
        memory.guard = b.both(outer, condition)
        self.emit(stmt.then)
        if stmt.otherwise is not None:
            memory.guard = b.both(outer, b.negate(condition))
            self.emit(stmt.otherwise)
        memory.guard = outer

    def _branch(self, condition: Value, stmt: If) -> None:
        b, registers = self.b, self.registers
        names = self.module.stored(stmt)
        number = b.labels(3)
        before = registers.snapshot(names)
        bodies: list[list[Statement]] = []
        ends: list[Tiles] = []
        for part in (stmt.then, stmt.otherwise):
            registers.tiles.update({name: dict(tile) for name, tile in before.items()})
            self.memory.forget()
            with b.nested() as body:
                if part is not None:
                    self.emit(part)
                    registers.divide_like(before)
            bodies.append(body)
            ends.append(registers.snapshot(names))
        self.memory.forget()
        joined = self._joined(*ends)
        b.body.append(Branch(condition.operand, bodies[0], bodies[1], joined, number))

    def _joined(self, then: Tiles, otherwise: Tiles) -> list[Joined]:
        """Merge the register tiles at the end of two branches, by a phi for each piece that
        differs. A piece that only one branch has written is undefined after the other, as are lanes
        excluded by a guard."""
        joined = []
        for name in then:
            merged = {}
            for number in sorted(then[name].keys() | otherwise[name].keys()):
                pieces = [tiles[name].get(number) for tiles in (then, otherwise)]
                written = [piece for piece in pieces if piece is not None]
                if any(piece[1:] != written[0][1:] for piece in written):
                    continue
                value = written[0].value
                unset = instr.poison(value.type)
                sides = [unset if piece is None else piece.value.operand for piece in pieces]
                if sides[0] is not sides[1]:
                    variable = self.b.variable(value.type, "joined")
                    joined.append(Joined(variable, *sides))
                    value = value.held_in(variable)
                merged[number] = written[0]._replace(value=value)
            self.registers.tiles[name] = merged
        return joined

    # -- intrinsics

    def _intrinsic(self, stmt: Intrinsic) -> None:
        """Emit a tensor intrinsic: load its operand tiles, emit its instructions, and store the
        output tile."""
        call, bindings = self.module.tile_call(stmt), self.bindings
        if isinstance(call, RowsCall):
            self._rows_intrinsic(call)
            return
        lanes = call.intrinsic.lanes
        operands = []
        bindings.lane, bindings.lanes, bindings.active = call.lane, lanes, lanes
        for load in call.loads:
            value = self.b.widen(self.expressions.evaluate(load), lanes)
            operands.append(value.operand)
        text = call.intrinsic.emit(self.b, operands)
        value = Value(text, call.store.buffer.dtype, lanes)
        if call.store.buffer.scope is MemoryScope.REGISTER:
            self._store_register(call.store, value)
        else:
            self.memory.store(call.store, value)
        bindings.lane, bindings.lanes, bindings.active = None, 1, 1

    def _rows_intrinsic(self, call: RowsCall) -> None:
        """Emit a tensor intrinsic whose operands are tiles of rows."""
        intrinsic, output = call.intrinsic, call.operands[0]
        none = instr.poison(output.registers.type)  # The instruction does not read the old value.
        first = [self._rows(output)] if intrinsic.reads_output else [none]
        text = intrinsic.emit(self.b, [*first, *map(self._rows, call.operands[1:])])
        if output.buffer.scope is not MemoryScope.REGISTER:
            self.memory.store_rows(output, text)
            return
        value = Value(text, output.buffer.dtype)
        # A tile is a single piece, stored under its first element, as element numbers in it are not
        # evenly spaced.
        self.registers.tiles[output.buffer.name][self._row_number(output)] = Piece(
            value, output.rows
        )

    def _rows(self, operand: RowsOperand) -> Operand:
        """Return the value that holds the tile of rows `operand`: loaded from memory, or the
        register in which it already is."""
        if operand.buffer.scope is not MemoryScope.REGISTER:
            return self.memory.load_rows(operand).operand
        number = self._row_number(operand)
        piece = self.registers.tiles[operand.buffer.name].get(number)
        if (
            piece is None
            or piece.width != operand.rows
            or piece.value.type is not operand.registers.type
        ):
            raise CompilerError(
                f"register {operand.buffer.name} holds no tile of {operand.rows} rows at {number}"
            )
        return piece.value.operand

    def _row_number(self, operand: RowsOperand) -> int:
        """Return the number of the first element of a tile of rows in a register buffer. Raises
        CompilerError if the number is not constant."""
        offset, const = self.memory.place_of(operand).resolve()
        if offset.terms or offset.irregular:
            raise CompilerError(
                f"a tile of register buffer {operand.buffer.name} is not at a constant place",
                hint="unroll the loops over tiles",
            )
        return static(const) // operand.buffer.dtype.nbytes
