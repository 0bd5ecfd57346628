"""A loop function to LLVM text: one pass over the statements, nothing left to an optimiser.

    i32 @name(ptr %args, ptr %pool)        the kernel: args = params, then sizes, workspace, slices
    void @name.body0(ptr %ctx, i64 %begin, i64 %end, i64 %worker)      one for each parallel loop

Unrolled loops are emitted once an iteration, vectorized loops once with values as wide as the loop
(rounded up to a power of two, the lanes beyond masked off memory) or, where its body needs memory
a lane, once an iteration; serial loops as loops whose register tiles are phis. What a parallel
loop's body needs from outside travels in a context struct.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import assert_never

from farrier.errors import CompilerError
from farrier.intrinsics import Dot, dot_of
from farrier.intrinsics.dot import factors_of, held_as
from farrier.ir.dim import as_extent, bounds
from farrier.ir.dim import number as static
from farrier.ir.expr import BinaryOp, Load, MemoryScope, less
from farrier.ir.loop import (
    Alloc,
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
from farrier.targets import Target
from farrier.targets.cpu.backend import cpu_backend_of
from farrier.targets.cpu.codegen import workspace
from farrier.targets.cpu.codegen.arithmetic import binary, cast, joined
from farrier.targets.cpu.codegen.builder import Builder, Lines
from farrier.targets.cpu.codegen.captures import Captures
from farrier.targets.cpu.codegen.expressions import Expressions
from farrier.targets.cpu.codegen.indices import Bindings
from farrier.targets.cpu.codegen.memory import tail_mask
from farrier.targets.cpu.codegen.module import Module
from farrier.targets.cpu.codegen.reductions import horizontal
from farrier.targets.cpu.codegen.registers import Piece, Tiles
from farrier.targets.cpu.codegen.short_loops import lengthen_iterations
from farrier.targets.cpu.codegen.text import Value
from farrier.targets.cpu.codegen.tiles import RowsCall, RowsOperand

_SIZES = "sizes!"  # no buffer can have this name


def emit_function(function: Function, target: Target) -> str:
    """A module with the kernel `i32 @<function.name>(ptr args, ptr pool)`.

    `args` holds the params in order, then, each where the function has any (`codegen.workspace`): a
    pointer to the values of `sizes_of` (i64), the workspace, and the slice of worker 0.
    """
    return emit_module((function,), target)


def emit_module(functions: Iterable[Function], target: Target) -> str:
    """A module with several kernels, as `emit_function` makes one each."""
    definitions: list[str] = []
    declarations: dict[str, None] = {}  # what more than one declares is declared once
    for function in functions:
        if cpu_backend_of(target).instructions(target).counts_loops:
            function = lengthen_iterations(function)
        module = Module(function, target)
        kernel = _Emitter(module, None)
        kernel.emit(function.body)
        kernel.b.put("ret i32 0")
        signature = f"define i32 @{function.name}(ptr %args, ptr %pool)"
        definitions += [_definition(signature, kernel.b.text(), target), *module.bodies]
        declarations |= dict.fromkeys(sorted(module.declarations))
        kernel.expressions.close()
    return "\n".join([*definitions, *declarations, ""])


def _definition(signature: str, text: str, target: Target) -> str:
    width = f'"min-legal-vector-width"="{target.vector_bits}"'
    return f'{signature} nounwind {width} "no-builtins" {{\nentry:\n{text}\n}}'


class _Emitter:
    """Emits the statements of one LLVM function: the kernel, or a parallel loop's body."""

    def __init__(self, module: Module, outer: _Emitter | None) -> None:
        self.module = module
        self.target = module.target
        instructions = cpu_backend_of(module.target).instructions(module.target)
        self.b = Builder(module.declarations, instructions)
        self.bindings = Bindings()
        self.expressions = Expressions(self.b, self.bindings, module.simplifier, module.target)
        self.memory = self.expressions.memory
        self.registers = self.expressions.registers
        self.outer = outer
        self.pool = "%pool"
        self.worker = "0"
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
            case _:
                assert_never(stmt)

    # -- buffers

    def _bind_arguments(self) -> None:
        """Every pointer is loaded once, where the function begins."""
        names = list(self.module.params)
        sizes = workspace.sizes_of(self.module.function)
        if sizes:
            names.append(_SIZES)
        if self.module.workspace.shared:
            names.append(workspace.SHARED)
        if self.module.workspace.per_worker:
            names.append(workspace.SLICES)
        for number, name in enumerate(names):
            pointer = self.b.hoisted(0, f"load ptr, ptr {self._word('%args', number)}, align 8")
            self.memory.bind(name, pointer)
        for number, symbol in enumerate(sizes):
            at = self._word(self.memory.bases[_SIZES], number)
            value = self.b.hoisted(0, f"load i64, ptr {at}, align 8")
            self.bindings.dynamic[symbol.name] = (0, value)
        for size in self.module.function.sizes:
            value = self.expressions.indices.size(size.extent)
            self.bindings.dynamic[size.name] = (0, value)

    def _word(self, base: str, number: int) -> str:
        """The address of the eight bytes `number` behind `base`."""
        if not number:
            return base
        return self.b.hoisted(0, f"getelementptr i8, ptr {base}, i64 {8 * number}")

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

    def _room(self, stmt: Alloc) -> str:
        """The pointer to an Alloc's memory: a part of the stack, or of the workspace."""
        buffer, plan = stmt.buffer, self.module.workspace
        if buffer.scope is MemoryScope.LOCAL and buffer.name not in plan.per_worker:
            size = plan.on_stack[buffer.name]
            # The comment makes buffers of one size different instructions.
            return self.b.hoisted(0, f"alloca [{size} x i8], align 64 ; {buffer.name}")
        if buffer.scope is MemoryScope.WORKSPACE:
            base = self.memory.base(dataclasses.replace(buffer, name=workspace.SHARED))
            offset = self.expressions.indices.size(plan.shared[buffer.name])
        else:
            slices = self.memory.base(dataclasses.replace(buffer, name=workspace.SLICES))
            step = self.expressions.indices.size(as_extent(workspace.SLICE_STEP))
            slice_at = self.b.hoisted(0, f"mul i64 {self.worker}, {step}")
            base = self.b.hoisted(0, f"getelementptr i8, ptr {slices}, i64 {slice_at}")
            offset = self.expressions.indices.size(plan.per_worker[buffer.name])
        return self.b.hoisted(0, f"getelementptr i8, ptr {base}, i64 {offset}")

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
        """Store a value of the buffer's dtype."""
        if stmt.buffer.scope is MemoryScope.REGISTER:
            self._store_register(stmt, value)
        else:
            self.memory.store(stmt, value)

    def _is_invariant(self, stmt: Store) -> bool:
        """Whether all lanes store to the same element."""
        if stmt.buffer.scope is MemoryScope.REGISTER:
            return self.expressions.register_range(stmt)[1] == 0
        return self.memory.is_invariant(stmt)

    def _store_scalar(self, stmt: Store, op: BinaryOp, total: Value) -> None:
        """Join a horizontal reduction with the old value of its element."""
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
        if bounds(loop.extent)[0] < 1 and loop.var not in self.not_empty:
            self._unless_empty(loop)
        elif kind is LoopKind.VECTORIZED and loop.extent != 1 and self.module.is_lockstep(loop):
            self._vectorized(loop)
        elif kind in (LoopKind.VECTORIZED, LoopKind.UNROLLED) or loop.extent == 1:
            self._unrolled(loop)
        elif kind is LoopKind.DOT:
            self._dot(loop)
        elif kind is LoopKind.GROUP:
            self._group(loop)
        elif kind is LoopKind.PARALLEL and self.outer is None:
            self._parallel(loop)
        else:
            # A parallel loop within a parallel loop: every thread is busy already.
            self._serial(loop, "0", self.expressions.indices.size(loop.extent))

    def _unless_empty(self, loop: For) -> None:
        """A loop whose test is at its end needs one before where it may have no iteration."""
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
        """All products of the loop by one dot product of the target, where one fits."""
        store = loop.body
        groups = self._groups(loop, store) if isinstance(store, Store) else None
        if groups is None or not isinstance(store, Store):
            self._unrolled(loop)
            return
        dot, left, right = groups
        lanes = self.bindings.lanes
        old = self.expressions.evaluate(self.module.old(store))
        operands = (self.b.widen(value, lanes).text for value in (old, left, right))
        total = Value(dot.emit(self.b, lanes, *operands), dot.total, lanes)
        self._store_value(store, total)

    def _groups(self, loop: For, store: Store) -> tuple[Dot, Value, Value] | None:
        """The dot product that adds up the loop's products, and its operands; None for none."""
        factors = factors_of(store)
        if factors is None:
            return None
        left, right = factors
        kinds = right.buffer.dtype, store.buffer.dtype
        dots = (dot_of(held, *kinds, self.target) for held in held_as(left.buffer.dtype))
        dot = next((dot for dot in dots if dot is not None), None)
        if dot is None or dot.group != loop.extent or self.bindings.lanes not in dot.lanes:
            return None
        one, other = (self._factor(load, loop.var, dot.group) for load in factors)
        return None if one is None or other is None else (dot, one, other)

    def _factor(self, load: Load, loop: str, size: int) -> Value | None:
        """A group of neighbours for each lane, as i32; None where they are none."""
        if load.buffer.scope is MemoryScope.REGISTER:
            return self._group_in_register(load, loop, size)
        value = self.memory.load_group(load, loop, size)
        return None if value is None else self.b.widen_group(value, self.bindings.lanes)

    def _group_in_register(self, load: Load, loop: str, size: int) -> Value | None:
        """As `_factor`, of the same group for all lanes."""
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
        """All elements that the loop stores by one store of wider ones, where they are neighbours;
        loaded likewise where those are."""
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

    def _serial(self, loop: For, first: str, end: str) -> None:
        """A loop with its test at the end: its extent is at least one."""
        b = self.b
        before, carried = b.block, self._carried(loop.body)
        label, done = b.fresh("loop"), b.fresh("done")
        b.put(f"br label %{label}")
        b.start_block(label)
        self.memory.forget()
        variable = b.fresh(f"i.{loop.var}.")
        phis: Lines = []
        b.lines.append(phis)
        scope_depth = len(b.scopes)
        # What sums in registers reads two or three streams; the others would have more additions.
        scope = b.open_scope(f"%{variable}" if carried and first == "0" else "")
        self.bindings.dynamic[loop.var] = (scope_depth, f"%{variable}")
        self.bindings.era += 1
        results = self._renamed(carried)
        self.emit(loop.body)
        phis += self._phis(carried, results, before)
        for (start, step), pointer in scope.stepped.items():
            size = self.expressions.indices.size(step)
            moved = b.emit(f"getelementptr i8, ptr {pointer}, i64 {size}")
            phis.append(f"  {pointer} = phi ptr [ {start}, %{before} ], [ {moved}, %{b.block} ]")
        following = b.emit(f"add nuw nsw i64 %{variable}, 1")
        phis.append(f"  %{variable} = phi i64 [ {first}, %{before} ], [ {following}, %{b.block} ]")
        if b.instructions.counts_loops and first == "0":
            # Down to zero: the subtraction is the comparison.
            left = f"%{b.fresh('left')}"
            fewer = b.emit(f"add nsw i64 {left}, -1")
            phis.append(f"  {left} = phi i64 [ {end}, %{before} ], [ {fewer}, %{b.block} ]")
            more = b.emit(f"icmp ne i64 {fewer}, 0")
        else:
            more = b.emit(f"icmp slt i64 {following}, {end}")
        b.put(f"br i1 {more}, label %{label}, label %{done}")
        b.close_scope()
        del self.bindings.dynamic[loop.var]
        self.bindings.era += 1
        b.start_block(done)
        self.memory.forget()

    def _while(self, stmt: While) -> None:
        """A loop with its test at the beginning."""
        b, registers = self.b, self.registers
        before, carried = b.block, self._carried(stmt.body)
        label, body, done = b.fresh("while"), b.fresh("body"), b.fresh("done")
        b.put(f"br label %{label}")
        b.start_block(label)
        self.memory.forget()
        phis: Lines = []
        b.lines.append(phis)
        results = self._renamed(carried)
        at_test = registers.snapshot(sorted(self.module.stored(stmt.body)))
        condition = self.expressions.evaluate(stmt.condition)
        b.put(f"br i1 {condition.text}, label %{body}, label %{done}")
        b.start_block(body)
        self.emit(stmt.body)
        phis += self._phis(carried, results, before)
        b.put(f"br label %{label}")
        b.start_block(done)
        self.memory.forget()
        registers.tiles.update(at_test)

    def _carried(self, body: Stmt) -> list[tuple[str, int, Piece]]:
        """The pieces of register tiles that iterations of `body` hand on."""
        names = sorted(self.module.stored(body))
        tiles = self.registers.snapshot(names)
        return [(name, at, piece) for name, tile in tiles.items() for at, piece in tile.items()]

    def _renamed(self, carried: list[tuple[str, int, Piece]]) -> list[str]:
        """Give each carried piece the name that it has within the loop."""
        results = []
        for name, number, piece in carried:
            result = f"%{self.b.fresh('acc')}"
            results.append(result)
            value = piece.value.named(result)
            self.registers.tiles[name][number] = piece._replace(value=value)
        return results

    def _phis(
        self, carried: list[tuple[str, int, Piece]], results: list[str], before: str
    ) -> list[str]:
        """The phis of the carried pieces, where the current block ends the loop's body."""
        phis = []
        for result, (name, number, (value, width, stride)) in zip(results, carried, strict=True):
            last = self.registers.find(name, number, width, stride, value.lanes)
            text = "poison" if last is None else last.text
            incoming = f"[ {value.text}, %{before} ], [ {text}, %{self.b.block} ]"
            phis.append(f"  {result} = phi {value.type} {incoming}")
        return phis

    def _parallel(self, loop: For) -> None:
        """Outline the body; here, fill the context and hand both to the pool."""
        written = self.module.stored(loop.body) & self.registers.tiles.keys()
        if written:
            raise CompilerError(
                f"parallel loop {loop.var} writes outer registers {sorted(written)}"
            )
        body = _Emitter(self.module, self)
        captures = Captures(self.b, self.bindings, self.memory, self.registers, body.b)
        captures.attach(body.bindings, body.memory, body.registers)
        body.worker, body.pool = "%worker", "null"
        body._serial(loop, "%begin", "%end")
        body.b.put("ret void")
        name = self.module.next_body()
        signature = f"define internal void @{name}(ptr %ctx, i64 %begin, i64 %end, i64 %worker)"
        self.module.bodies.append(_definition(signature, body.b.text(), self.target))
        body.expressions.close()
        context = captures.store()
        run = self.b.hoisted(0, f"load ptr, ptr {self.pool}, align 8")
        extent = self.expressions.indices.size(loop.extent)
        self.b.put(f"call void {run}(ptr {self.pool}, ptr @{name}, ptr {context}, i64 {extent})")
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
        """A condition within a vectorized loop guards each lane."""
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
        then, otherwise, after = b.fresh("then"), b.fresh("else"), b.fresh("after")
        b.put(f"br i1 {condition.text}, label %{then}, label %{otherwise}")
        before = registers.snapshot(names)
        ends: list[tuple[str, Tiles]] = []
        for label, body in ((then, stmt.then), (otherwise, stmt.otherwise)):
            registers.tiles.update({name: dict(tile) for name, tile in before.items()})
            b.start_block(label)
            self.memory.forget()
            if body is not None:
                self.emit(body)
                registers.divide_like(before)
            ends.append((b.block, registers.snapshot(names)))
            b.put(f"br label %{after}")
        b.start_block(after)
        self.memory.forget()
        self._meet(*ends)

    def _meet(self, one: tuple[str, Tiles], other: tuple[str, Tiles]) -> None:
        """What registers hold after two blocks that end here; what one of them alone wrote is
        undefined after the other, as lanes are that a guard left out."""
        (block_a, tiles_a), (block_b, tiles_b) = one, other
        for name in tiles_a:
            merged = {}
            for number in sorted(tiles_a[name].keys() | tiles_b[name].keys()):
                pieces = [tiles[name].get(number) for tiles in (tiles_a, tiles_b)]
                known = [piece for piece in pieces if piece is not None]
                if any(piece[1:] != known[0][1:] for piece in known):
                    continue
                value = known[0].value
                texts = ["poison" if piece is None else piece.value.text for piece in pieces]
                if texts[0] != texts[1]:
                    a, b = texts
                    text = self.b.emit(f"phi {value.type} [ {a}, %{block_a} ], [ {b}, %{block_b} ]")
                    value = value.named(text)
                merged[number] = known[0]._replace(value=value)
            self.registers.tiles[name] = merged

    # -- intrinsics

    def _intrinsic(self, stmt: Intrinsic) -> None:
        """Load the tiles, let the intrinsic write its instructions, store the output tile."""
        call, bindings = self.module.tile_call(stmt), self.bindings
        if isinstance(call, RowsCall):
            self._rows_intrinsic(call)
            return
        lanes = call.intrinsic.lanes
        operands = []
        bindings.lane, bindings.lanes, bindings.active = call.lane, lanes, lanes
        for load in call.loads:
            value = self.b.widen(self.expressions.evaluate(load), lanes)
            operands.append(value.text)
        text = call.intrinsic.emit(self.b, operands)
        value = Value(text, call.store.buffer.dtype, lanes)
        if call.store.buffer.scope is MemoryScope.REGISTER:
            self._store_register(call.store, value)
        else:
            self.memory.store(call.store, value)
        bindings.lane, bindings.lanes, bindings.active = None, 1, 1

    def _rows_intrinsic(self, call: RowsCall) -> None:
        """As above, for tiles of rows."""
        intrinsic, output = call.intrinsic, call.operands[0]
        first = [self._rows(output)] if intrinsic.reads_output else [""]
        text = intrinsic.emit(self.b, [*first, *map(self._rows, call.operands[1:])])
        if output.buffer.scope is not MemoryScope.REGISTER:
            self.memory.store_rows(output, text)
            return
        value = Value(text, output.buffer.dtype, register=output.registers.type)
        # A tile is one piece, by its first element: its numbers do not follow one another.
        self.registers.tiles[output.buffer.name][self._row_number(output)] = Piece(
            value, output.rows
        )

    def _rows(self, operand: RowsOperand) -> str:
        """The value of a tile of rows."""
        if operand.buffer.scope is not MemoryScope.REGISTER:
            return self.memory.load_rows(operand).text
        number = self._row_number(operand)
        piece = self.registers.tiles[operand.buffer.name].get(number)
        if piece is None or piece.width != operand.rows or not piece.value.register:
            raise CompilerError(
                f"register {operand.buffer.name} holds no tile of {operand.rows} rows at {number}"
            )
        return piece.value.text

    def _row_number(self, operand: RowsOperand) -> int:
        """The number of the first element of a tile in registers."""
        offset, const = self.memory.place_of(operand).resolve()
        if offset.terms or offset.irregular:
            raise CompilerError(
                f"a tile of register buffer {operand.buffer.name} is not at a constant place",
                hint="unroll the loops over tiles",
            )
        return static(const) // operand.buffer.dtype.nbytes
