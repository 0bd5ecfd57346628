"""The emission of copies of whole tiles by the Tensor Memory Accelerator (TMA): one thread starts a
copy, whose bytes an `mbarrier` in shared memory counts.

There is an mbarrier for each stage. The barriers that wait for copies close groups of them, which
take the mbarriers in turn. A tensor map, which is a parameter of the kernel, describes the array
that a copy reads as a matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from farrier.intrinsics import lookup
from farrier.intrinsics.warpgroups import ROW_BYTES
from farrier.ir import instr
from farrier.ir.addresses import flatten
from farrier.ir.dim import number
from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.instr import I32, I64, PTR, Operand, Variable
from farrier.ir.linear import Linear, to_expr
from farrier.ir.loop import Barrier, Intrinsic, Stmt, Tile
from farrier.ir.statements import walk_stmts
from farrier.ir.threads import is_fetch
from farrier.targets.cuda.expressions import Expressions
from farrier.targets.gpu.inexpressible import InexpressibleError
from farrier.targets.llvm.builder import Builder
from farrier_device.cuda_library import TensorMap

_BARRIER_BYTES = 8  # Of an mbarrier.
_TID = "llvm.nvvm.read.ptx.sreg.tid.x"
_OF_MAPS = 'byval([128 x i8]) align 64 "nvvm.grid_constant"'  # Attributes of a parameter.
_INIT = "mbarrier.init.shared::cta.b64 [$0], 1;"
_EXPECT = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [$0], $1;"
_COPY = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    " [$2], [$3, {$4, $5}], [$0];"
)
_ARRIVE = "{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [$0]; }"
_WAIT = (
    "{ .reg .pred done; again${:uid}: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;"
    " @!done bra again${:uid}; }"
)


class Fetches:
    """The emitter of the copies of one kernel, whose statement is `body`; `params` are its
    buffers."""

    def __init__(
        self, builder: Builder, expressions: Expressions, body: Stmt, params: Iterable[Buffer]
    ) -> None:
        self._b, self._expressions = builder, expressions
        statements = list(walk_stmts(body))
        calls = [each for each in statements if isinstance(each, Intrinsic) and is_fetch(each.name)]
        waits = [
            each.copies
            for each in statements
            if isinstance(each, Barrier)
            and each.copies is not None
            and each.scope is MemoryScope.WORKGROUP
        ]
        # A wait leaves all groups but that of its own stage and that of the stage that is free.
        self._stages = max(waits) + 2 if calls else 0
        position = {buffer.name: at for at, buffer in enumerate(params)}
        self.maps: dict[TensorMap, Variable] = {}
        for call in calls:
            source = call.operands[1]
            described = _map_of(call.name, source, position[source.buffer.name])
            if described not in self.maps:
                variable = Variable(PTR, f"map_{len(self.maps)}", _OF_MAPS)
                self.maps[described] = variable
        self._position = position

    @property
    def shared_bytes(self) -> int:
        """The bytes of the mbarriers in shared memory; 0 if the kernel has no such copies."""
        return _BARRIER_BYTES * self._stages

    def begin(self, barriers: Operand) -> None:
        """Emit the initialization of the mbarriers at an address."""
        b = self._b
        self._barriers = b.convert(instr.PTRTOINT, barriers, I32)
        self._closed = b.hoisted(0, instr.STACK, PTR, (), (4, "closed"))
        b.store(_number(0), self._closed, 4)
        with b.only_if(self._is_first()):
            for stage in range(self._stages):
                at = b.op(instr.ADD, self._barriers, _number(_BARRIER_BYTES * stage))
                b.shared_assembly(_INIT, "r,~{memory}", instr.VOID, at)
            b.effect("llvm.nvvm.fence.mbarrier_init.release.cluster", instr.VOID)
        b.effect("llvm.nvvm.barrier.cta.sync.aligned.all", instr.VOID, _number(0))

    def copy(self, name: str, target: Tile, source: Tile) -> None:
        """Emit the start of a copy, in the group that is open."""
        described = _map_of(name, source, self._position[source.buffer.name])
        form = flatten(source.buffer, source.origin, self._expressions.indices.simplifier, 1)
        simplifier = self._expressions.indices.simplifier
        row = simplifier.divide(form, described.width)
        column = simplifier.remainder(form, described.width)
        to = self._b.convert(
            instr.PTRTOINT, self._expressions.address(target.buffer, target.origin), I32
        )
        nbytes = described.rows * ROW_BYTES
        barrier = self._barrier(self._b.load(I32, self._closed, 4))
        operands = barrier, _number(nbytes), to, self.maps[described]
        coordinates = self._value(column), self._value(row)
        constraints = "r,r,r,l,r,r,~{memory}"
        self._b.shared_assembly(
            f"{_EXPECT} {_COPY}", constraints, instr.VOID, *operands, *coordinates
        )

    def wait(self, most: int) -> None:
        """Close the open group, and wait until at most `most` groups are unfinished."""
        b = self._b
        open_ = b.load(I32, self._closed, 4)
        with b.only_if(self._is_first()):
            b.shared_assembly(_ARRIVE, "r,~{memory}", instr.VOID, self._barrier(open_))
        b.store(b.op(instr.ADD, open_, _number(1)), self._closed, 4)
        if most >= self._stages:  # Fewer groups are ever unfinished.
            return
        group = b.op(instr.SUB, open_, _number(most))
        turn = b.op(instr.UDIV, group, _number(self._stages))
        parity = b.op(instr.AND, turn, _number(1))
        b.shared_assembly(_WAIT, "r,r,~{memory}", instr.VOID, self._barrier(group), parity)

    def _barrier(self, group: Operand) -> Operand:
        stage = self._b.op(instr.UREM, group, _number(self._stages))
        at = self._b.op(instr.MUL, stage, _number(_BARRIER_BYTES))
        return self._b.op(instr.ADD, self._barriers, at)

    def _value(self, form: Linear) -> Operand:
        value = self._expressions.indices.value(to_expr(form)).operand
        return self._b.convert(instr.TRUNC, value, I32) if value.type is I64 else value

    def _is_first(self) -> Operand:
        return self._b.icmp("eq", self._b.call(_TID, I32), _number(0))


def _map_of(name: str, source: Tile, position: int) -> TensorMap:
    """Return the description of an array as a matrix, whose rows are `source.axes[0]` apart."""
    buffer = source.buffer
    rows_axis, _ = source.axes
    inside = False
    width = 1
    for dim in buffer.element_layout.dims:
        if inside:
            width *= number(buffer.shape[dim.axis])
        inside |= dim.axis == rows_axis
    size = math.prod(number(extent) for extent in buffer.shape)
    if width * buffer.dtype.nbytes % 16 or size % width:
        raise InexpressibleError(f"rows of {buffer.name} are no multiples of 16 bytes")
    rows = number(lookup(name).semantics.params[0].shape[0])
    return TensorMap(position, buffer.dtype.nbytes, width, size // width, rows)


def _number(value: int) -> Operand:
    return instr.number_of(I32, value)
