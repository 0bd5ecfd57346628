"""The schedule of a region as a pipeline: the values and writes of an iteration, each with its
cycle.

A new iteration begins every `interval` cycles. The schedule must satisfy constraints of the form
`t[b] >= t[a] + n` between the cycles of two events. They express, for example, the cycle that a
read of a memory takes, a port that two accesses share, or an element that one iteration writes and
a later iteration reads. The schedule is the solution with the smallest cycles, for the smallest
interval for which there is a solution.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from farrier.errors import UsageError
from farrier.hardware.kernels.banks import Bank, Banks
from farrier.hardware.kernels.regions import Guarded, Region, all_of
from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.expr import Binary, BinaryOp, Cast, Const, Expr, Load, Select, Unary, UnaryOp, Var
from farrier.ir.linear import combine
from farrier.ir.types import DType
from farrier.schedule.dependence import agreed

_MOST = 1024  # Cycles from one iteration to the next.
READ_CYCLES = 1
_FREE = ("constant", "variable", "wrap", "register")  # These take no cycle.


@dataclasses.dataclass(eq=False, slots=True)
class Value:
    """A value that an iteration computes. `kind` is "constant", "variable", "wrap" (to the width of
    a dtype), "register", "read", or the name of an operator. Its operands `args` must be available
    in cycle `cycle` of the iteration; the value itself is available `latency` cycles later."""

    kind: str
    args: tuple[Value, ...] = ()
    number: int = 0
    name: str = ""
    dtype: DType | None = None
    bank: Bank | None = None
    cycle: int = 0
    latency: int = 0


@dataclasses.dataclass(eq=False, slots=True)
class Write:
    """A write to `bank` in cycle `cycle` of an iteration. If `enable` is not None, it takes place
    only if that condition holds."""

    bank: Bank
    address: Value
    value: Value
    enable: Value | None
    cycle: int = 0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """A region with its schedule: the reads from memories and all writes, each with its cycle, and
    the number of cycles from one iteration to the next (`interval`)."""

    region: Region
    reads: Sequence[Value]
    writes: Sequence[Write]
    interval: int

    @property
    def depth(self) -> int:
        """The number of cycles that one iteration takes."""
        return 1 + max((write.cycle for write in self.writes), default=0)

    @property
    def cycles(self) -> int:
        """The number of cycles that all iterations together take."""
        return (self.region.iterations - 1) * self.interval + self.depth


def pipeline_of(region: Region, banks: Banks, ranges: Mapping[str, int], name: str) -> Pipeline:
    """Return the pipeline of a region with the smallest possible interval. `ranges` maps loop
    variables to their extents, and `name` is the kernel's, for messages. Raises UsageError for an
    operator or dtype that hardware does not support."""
    flow = _Flow(region, banks, ranges, name)
    for interval in range(1, _MOST + 1):
        if flow.place(interval):
            return Pipeline(region, flow.reads, flow.writes, interval)
    raise UsageError(f"{name}: iterations would be more than {_MOST} cycles apart")


def banks_of(pipelines: Sequence[Pipeline]) -> tuple[list[Bank], list[Bank]]:
    """Return the banks that the pipelines read through a port, and the banks that they write.
    Registers are not among the former, as they are read without a port."""
    reads = (read.bank for each in pipelines for read in each.reads)
    writes = (write.bank for each in pipelines for write in each.writes)
    return list(dict.fromkeys(b for b in reads if b is not None)), list(dict.fromkeys(writes))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Touch:
    """A read or a write of a memory, with the indices of the element."""

    indices: tuple[Expr, ...]
    event: Value | Write
    bank: Bank

    @property
    def writes(self) -> bool:
        return isinstance(self.event, Write)


class _Flow:
    """The dataflow graph of one iteration: its values and writes. If an iteration stores to a
    register and then loads from it, the load is replaced by the stored value."""

    def __init__(self, region: Region, banks: Banks, ranges: Mapping[str, int], name: str) -> None:
        self._region, self._banks, self._ranges, self._name = region, banks, ranges, name
        self._simplifier = Simplifier(ranges)
        self._values: dict[tuple[object, ...], Value] = {}
        self._held: dict[Bank, Value] = {}  # What a register holds within the iteration.
        self._known: dict[tuple[Bank, Value], Value] = {}  # What was read since the last write.
        self._touches: list[_Touch] = []
        self.reads: list[Value] = []
        self.writes: list[Write] = []
        self._build()

    def _build(self) -> None:
        stored = [self._banks.element(g.store.buffer, g.store.indices)[0] for g in self._stores]
        changes: dict[Bank, Write] = {}
        for guarded, bank in zip(self._stores, stored, strict=True):
            store, condition = guarded.store, all_of(guarded.conditions)
            enable = None if condition is None else self._value(condition)
            value = self._wrapped(self._value(store.value), bank.dtype)
            _, address = self._banks.element(store.buffer, store.indices)
            if not bank.is_register:
                write = Write(bank, self._value(address), value, enable)
                self._touches.append(_Touch(store.indices, write, bank))
                self.writes.append(write)
                self._known = {key: v for key, v in self._known.items() if key[0] != bank}
                if enable is None:  # A later load there yields the same value.
                    self._known[bank, write.address] = value
                continue
            merged = value
            if enable is not None:
                merged = self._made("select", (enable, value, self._register(bank)))
            self._held[bank] = merged
            once = stored.count(bank) == 1
            changes[bank] = Write(
                bank, self._constant(0), value if once else merged, enable if once else None
            )
        self.writes += changes.values()
        self._set_latencies()

    @property
    def _stores(self) -> tuple[Guarded, ...]:
        return self._region.stores

    # -- values

    def _made(
        self,
        kind: str,
        args: tuple[Value, ...] = (),
        number: int = 0,
        name: str = "",
        dtype: DType | None = None,
        bank: Bank | None = None,
    ) -> Value:
        """Return the value with these fields. Equal values are computed only once."""
        key = kind, args, number, name, dtype, bank
        if key not in self._values:
            self._values[key] = Value(kind, args, number, name, dtype, bank)
        return self._values[key]

    def _constant(self, number: int) -> Value:
        return self._made("constant", number=number)

    def _wrapped(self, value: Value, dtype: DType) -> Value:
        return self._made("wrap", (value,), dtype=dtype)

    def _register(self, bank: Bank) -> Value:
        if bank not in self._held:
            self._held[bank] = self._made("register", bank=bank)
        return self._held[bank]

    def _value(self, expr: Expr) -> Value:
        match expr:
            case Const(value, _):
                return self._constant(int(value))
            case Var(name):
                return self._made("variable", name=name)
            case Load(buffer, indices):
                return self._load(buffer, indices)
            case Cast(dtype, operand):
                self._refuse(dtype)
                kind = "truth" if dtype is DType.BOOL else "wrap"
                return self._made(kind, (self._value(operand),), dtype=dtype)
            case Unary(UnaryOp.NEG | UnaryOp.NOT | UnaryOp.ABS as op, operand):
                return self._made(str(op), (self._value(operand),))
            case Select(condition, then, otherwise):
                parts = tuple(map(self._value, (condition, then, otherwise)))
                return self._made("select", parts)
            case Binary(op, left, right):
                return self._binary(op, left, right)
        raise UsageError(f"{self._name}: hardware of kernels has no {type(expr).__name__.lower()}")

    def _refuse(self, dtype: DType) -> None:
        if not dtype.is_integer and dtype is not DType.BOOL:
            raise UsageError(f"{self._name}: hardware of kernels has no {dtype.value}")

    def _binary(self, op: BinaryOp, left: Expr, right: Expr) -> Value:
        self._refuse(e.dtype_of(left))
        if op in (BinaryOp.DIV, BinaryOp.MOD):
            by = right.value if isinstance(right, Const) else 0
            if not isinstance(by, int) or by < 1 or by & (by - 1):
                raise UsageError(
                    f"{self._name}: hardware divides by powers of two alone",
                    hint="loops that are split by a power of two, or not fused, need no other",
                )
        if op in (BinaryOp.SHL, BinaryOp.SHR):
            bits = e.dtype_of(left).bits
            if not isinstance(right, Const) or not 0 <= int(right.value) < bits:
                raise UsageError(f"{self._name}: hardware shifts by a number below {bits} alone")
        if str(op) not in OPERATORS:
            raise UsageError(f"{self._name}: hardware of kernels has no {op}")
        value = self._made(str(op), (self._value(left), self._value(right)))
        return self._wrapped(value, e.dtype_of(left)) if op is BinaryOp.SHL else value

    def _load(self, buffer: e.Buffer, indices: tuple[Expr, ...]) -> Value:
        bank, address = self._banks.element(buffer, indices)
        if bank.is_register:
            return self._register(bank)
        place = self._value(address)
        if (bank, place) not in self._known:
            read = Value("read", (place,), bank=bank, latency=READ_CYCLES)
            self._known[bank, place] = read
            self._touches.append(_Touch(indices, read, bank))
            self.reads.append(read)
        return self._known[bank, place]

    def _set_latencies(self) -> None:
        """Set the latency of each value. The result of an operation is stored in a pipeline
        register, which takes one cycle. There are two exceptions without latency: operations on
        indices alone, and the last operation before a write unless it is a multiplication. A
        running sum can therefore be read, added to and written in a single cycle."""
        every = list(self._every())
        users: dict[Value, int] = dict.fromkeys(every, 0)
        for value in every:
            for arg in value.args:
                users[arg] += 1
        at_once = set()
        for write in self.writes:
            value = write.value
            if value.kind == "wrap" and not users[value]:
                (value,) = value.args
            at_once.add(value)
        index: set[Value] = set()
        for value in every:
            if value.kind in ("constant", "variable") or (
                value.kind not in ("read", "register") and all(a in index for a in value.args)
            ):
                index.add(value)
        for value in every:
            is_free = value.kind in _FREE or value in index
            if not is_free and value.kind != "read":
                value.latency = 1 if value.kind == "mul" or value not in at_once else 0

    def _every(self) -> Iterator[Value]:
        """Yield each value once, after its operands."""
        seen: set[Value] = set()
        roots = [v for w in self.writes for v in (w.address, w.value, w.enable) if v is not None]
        stack = [(root, False) for root in reversed([*roots, *self.reads])]
        while stack:
            value, is_done = stack.pop()
            if is_done:
                yield value
            elif value not in seen:
                seen.add(value)
                stack.append((value, True))
                stack += [(arg, False) for arg in value.args]

    # -- cycles

    def place(self, interval: int) -> bool:
        """Find a schedule for iterations that begin every `interval` cycles. If there is one, set
        the cycles of all values and writes, and return True; otherwise return False."""
        values = [v for v in self._every() if v.kind not in ("constant", "variable")]
        events: list[Value | Write] = [*values, *self.writes]
        for event in events:
            event.cycle = 0
        bounds = [*self._flows(values), *self._registers(interval), *self._memories(interval)]
        for _ in range(len(events) + 1):
            changed = False
            for first, then, least in bounds:
                if then.cycle < first.cycle + least:
                    then.cycle = first.cycle + least
                    changed = True
            if not changed:
                return True
        return False

    def _flows(self, values: Sequence[Value]) -> Iterator[tuple[Value, Value | Write, int]]:
        for value in values:
            for arg in value.args:
                yield arg, value, arg.latency
        for write in self.writes:
            for part in (write.value, write.address, write.enable):
                if part is not None:
                    yield part, write, part.latency

    def _registers(self, interval: int) -> Iterator[tuple[Value | Write, Value | Write, int]]:
        """Yield the constraints on accesses to registers: an iteration reads a register in the
        cycle of its own write or before, and after the write of the previous iteration."""
        read = {v.bank: v for v in self._every() if v.kind == "register"}
        for write in self.writes:
            value = read.get(write.bank)
            if write.bank.is_register and value is not None:
                yield value, write, 0
                yield write, value, 1 - interval

    def _memories(self, interval: int) -> Iterator[tuple[Value | Write, Value | Write, int]]:
        for bank in dict.fromkeys(touch.bank for touch in self._touches):
            touches = [touch for touch in self._touches if touch.bank == bank]
            for writes in (False, True):
                # A port is used once in a cycle, also by iterations that overlap.
                users = [touch.event for touch in touches if touch.writes is writes]
                for earlier, later in itertools.pairwise(users):
                    yield earlier, later, 1
                if users:
                    yield users[-1], users[0], 1 - interval
            for n, first in enumerate(touches):
                for then in touches[n:]:
                    if first.writes or then.writes:
                        yield from self._ordered(first, then, interval)

    def _ordered(
        self, first: _Touch, then: _Touch, interval: int
    ) -> Iterator[tuple[Value | Write, Value | Write, int]]:
        """Yield the constraints that keep the accesses `first` and `then` in the order of the
        program, if they may access the same element, in one iteration or in different ones."""
        left, right = (tuple(map(self._simplifier.linear, t.indices)) for t in (first, then))
        differences = [combine(a, b, -1) for a, b in zip(left, right, strict=True)]
        is_apart = any(not d.terms and d.const != 0 for d in differences)
        if first is not then and not is_apart:
            yield first.event, then.event, 1
        around = frozenset(var for var, _ in self._region.around)
        changed = {touch.bank.buffer for touch in self._touches if touch.writes}
        same = agreed(self._simplifier, left, right, around, changed)
        distance, least = 1, 0
        for var, extent in reversed(self._region.loops):
            if var not in same and extent > 1:
                least = distance
                break
            distance *= extent
        if least:
            yield first.event, then.event, 1 - least * interval
            yield then.event, first.event, 1 - least * interval


# What hardware computes; `module.py` says how.
OPERATORS = frozenset(
    {
        *("add", "sub", "mul", "div", "mod", "min", "max", "lt", "le", "eq", "ne", "and", "or"),
        *("bit_and", "bit_or", "bit_xor", "shl", "shr"),
    }
)
