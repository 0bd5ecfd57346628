"""Find the distinct kernels of a graph, and build the driver program that calls them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from farrier.errors import CompilerError
from farrier.ir.control import (
    BIND,
    FAIL,
    REQUIRE,
    If,
    Loop,
    control_of,
    grown,
    is_control,
    joined,
)
from farrier.ir.dim import Extent, Symbol, symbols
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.printer import print_ir
from farrier.ir.sizes import Demand
from farrier.ops import lookup
from farrier.ops.operator import to_extents
from farrier.ops.own import RELAYOUT
from farrier.ops.scatter import IN_PLACE
from farrier.ops.slicing import ADJOIN, offset_of
from farrier.ops.traits import Trait
from farrier.partition.canonical import canonical_region
from farrier.partition.dims import own_dims
from farrier.partition.literals import share_literals
from farrier.partition.open_channels import with_open_channels
from farrier.partition.program import (
    Bind,
    Branch,
    Call,
    Carried,
    DriverProgram,
    Fail,
    Home,
    Repeat,
    Slice,
    Step,
    outermost,
)
from farrier.partition.task import Task
from farrier.partition.verify_program import verify_driver
from farrier.progress.debug import READ_BACK, check_level


def extract_tasks(
    graph: Graph, *, share_channels: bool = False
) -> tuple[dict[str, Task], DriverProgram]:
    """Return the tasks of an optimized graph by key, in the order of their first call, and the
    program that calls them.

    Some values share memory: a view with its operand; the operands of an Adjoin with its result;
    and the results of a region with the results of the region's node. A kernel that writes no
    elements is not called. Kernels that differ only in literals are merged into one. If
    `share_channels` is true, kernels that differ only in channel counts are merged too.

    Raises CompilerError if a value would need two places in memory; `fuse` prevents that.
    """
    flattening = _Flattening()
    steps = flattening.steps_of(graph, "", 1)
    program = DriverProgram(
        graph.inputs,
        graph.outputs,
        tuple(flattening.constants.values()),
        steps,
        {name: outermost(home, flattening.homes) for name, home in flattening.homes.items()},
    )
    if check_level() >= READ_BACK:
        verify_driver(program)
    tasks, program = share_literals(flattening.tasks, program)
    return with_open_channels(tasks, program) if share_channels else (tasks, program)


class _Flattening:
    """The tasks, constants and homes of a graph and all its regions, collected under unique names.
    A home is the value in whose memory another value lies."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.constants: dict[str, Constant] = {}
        self.homes: dict[str, Home] = {}

    def steps_of(self, graph: Graph, prefix: str, runs: int) -> tuple[Step, ...]:
        """Return the steps of a graph or region; the names of its values get the prefix `prefix`.
        One run of the model executes them `runs` times."""
        for constant in graph.constants:
            value = _named(constant.value, prefix)
            is_same = value == constant.value  # The digest of the same constant may be known.
            self.constants[value.name] = constant if is_same else Constant(value, constant.content)
        steps: list[Step] = []
        for node in graph.nodes:
            inputs = tuple(_named(value, prefix) for value in node.inputs if value is not None)
            outputs = tuple(_named(value, prefix) for value in node.outputs)
            if node.op == "Fused":
                if any(value.type.nbytes != 0 for value in outputs):
                    steps.append(self._call(node, inputs, outputs, runs))
            elif is_control(node):
                steps.append(self._flow(node, prefix, runs))
            elif node.op in (BIND, REQUIRE):
                steps.append(self._bind(node, inputs))
            elif node.op == FAIL:
                steps.append(Fail(str(node.attr("reason")), node.origin))
            elif ADJOIN.matches(node):
                self._adjoin(node, inputs, outputs[0])
            elif inputs:
                self.homes[outputs[0].name] = Home(inputs[0].name, offset_of(node))
        return tuple(steps)

    def _flow(self, node: Node, prefix: str, runs: int) -> Branch | Repeat:
        parts = control_of(node)
        assert parts is not None
        if isinstance(parts, If):
            return self._branch(parts, prefix, runs)
        return self._repeat(parts, prefix, runs, node.origin)

    def _call(
        self, node: Node, operands: Sequence[Value], outputs: tuple[Value, ...], runs: int
    ) -> Call:
        region, order = canonical_region(node.regions[0])
        own = own_dims(region)
        region = own.region
        inputs = tuple(operands[position] for position in order)
        constant_names = frozenset(
            inside.name
            for inside, outside in zip(region.inputs, inputs, strict=True)
            if self._constant(outside) is not None
        )
        task = Task.of(region, constant_names)
        self.tasks.setdefault(task.key, task)
        (count, *_) = (str(inner.attr("extent", "")) for inner in node.regions[0].nodes)
        copies = _is_copy(node.regions[0])
        if (position := _updated(node.regions[0])) is not None:
            self.homes[outputs[0].name] = Home(operands[position].name)
        return Call(
            task.key, inputs, outputs, node.origin, runs, own.dims, own.needed, count, copies
        )

    def _bind(self, node: Node, inputs: Sequence[Value]) -> Bind:
        value, sizes = inputs
        extents = to_extents(self.constants[sizes.name].data)
        reason = str(node.attr("reason", ""))
        demands = Demand(str(node.attr("demands", Demand.EXACT)))
        return Bind(
            value,
            extents,
            node.origin,
            is_check=node.op == REQUIRE,
            reason=reason,
            demands=demands,
            needs=str(node.attr("needs", "")),
        )

    def _constant(self, value: Value) -> Constant | None:
        """Return the constant that defines a value; None for a computed value or a view."""
        home = outermost(Home(value.name), self.homes)
        constant = self.constants.get(home.name)
        return constant if constant is not None and constant.value.type == value.type else None

    def _adjoin(self, node: Node, parts: Sequence[Value], whole: Value) -> None:
        offset: Extent = 0
        for part in parts:
            if part.name in self.homes:
                raise CompilerError(f"a part of Adjoin lies elsewhere\n{print_ir(node)}")
            self.homes[part.name] = Home(whole.name, offset)
            offset += part.type.nbytes
        if offset != whole.type.nbytes:
            raise CompilerError(f"the parts of Adjoin do not fill it\n{print_ir(node)}")

    def _branch(self, node: If, prefix: str, runs: int) -> Branch:
        branches = []
        for position, region in enumerate(node.branches):
            inner = f"{prefix}{node.results[0].name}.{position}."
            self._alias(region.inputs, inner, node.captured, prefix)
            branches.append(self.steps_of(region, inner, runs))
            for inside, outside in zip(region.outputs, node.results, strict=True):
                root = self._root(inside, region, inner)
                self.homes[root.name] = Home(f"{prefix}{outside.name}")
        then, otherwise = branches
        return Branch(_named(node.condition, prefix), then, otherwise, joined(node))

    def _repeat(self, node: Loop, prefix: str, runs: int, origin: str) -> Repeat:
        inner = f"{prefix}{(*node.results, *node.stacks)[0].name}.0."
        trips = self._number(node.trips, prefix)
        self._alias(node.seen, inner, node.captured, prefix)
        self._alias(node.results, prefix, node.current, inner)
        body = self.steps_of(node.body, inner, runs * max(trips, 1) if trips is not None else runs)
        return Repeat(
            trips if trips is not None or node.trips is None else _named(node.trips, prefix),
            None if node.condition is None else _named(node.condition, prefix),
            None if node.again is None else _named(node.again, inner),
            _named(node.iteration, inner),
            tuple(
                Carried(
                    _named(initial, prefix),
                    _named(current, inner),
                    self._root(after, node.body, inner),
                )
                for initial, current, after in zip(
                    node.carried, node.current, node.next, strict=True
                )
            ),
            tuple(
                Slice(_named(whole, prefix), _named(part, inner))
                for whole, part in zip(node.scanned, node.slices, strict=True)
            ),
            tuple(
                Slice(_named(whole, prefix), self._root(part, node.body, inner))
                for whole, part in zip(node.stacks, node.parts, strict=True)
            ),
            body,
            next((s for s in _symbols(node.stacks) if s.name == node.extent), None),
            grown(node),
            origin,
            node.note,
        )

    def _alias(
        self, values: Sequence[Value], prefix: str, others: Sequence[Value], outer: str
    ) -> None:
        """Record that each of `values` has the memory of the value at the same position in
        `others`."""
        for value, other in zip(values, others, strict=True):
            self.homes[f"{prefix}{value.name}"] = Home(f"{outer}{other.name}")

    def _root(self, value: Value, region: Graph, prefix: str) -> Value:
        """Return the value in whose memory a result of a region is stored. The caller then lets
        that value share other memory. Raises CompilerError if no node of the region computes it."""
        home = outermost(Home(f"{prefix}{value.name}"), self.homes)
        owned = {f"{prefix}{v.name}" for node in region.nodes for v in node.outputs}
        if home.offset != 0 or home.name not in owned:
            raise CompilerError(
                f"the region's result {value.name} has no memory of its own: it is {home.name}'s"
            )
        return Value(home.name, value.type)

    def _number(self, trips: Value | None, prefix: str) -> int | None:
        """Return a trip count if it is constant, else None."""
        constant = self._constant(_named(trips, prefix)) if trips is not None else None
        return None if constant is None else int(constant.data.reshape(-1)[0])


def _is_copy(region: Graph) -> bool:
    """Check whether a kernel does nothing but copy the bytes of its operand to its result."""
    if len(region.nodes) != 1 or not RELAYOUT.matches(region.nodes[0]):
        return False
    (node,) = region.nodes
    source = node.inputs[0]
    return source is not None and source.type == node.outputs[0].type


def _updated(region: Graph) -> int | None:
    """Return the position of the operand that a kernel updates in place; the result then has the
    memory of that operand. Return None if the kernel does not update an operand."""
    node = region.nodes[-1]
    source = node.inputs[0] if node.inputs else None
    if source is None or not (lookup(node.op).has(Trait.IN_PLACE) or node.attr(IN_PLACE)):
        return None
    return region.inputs.index(source)


def _symbols(values: Iterable[Value]) -> Iterator[Symbol]:
    return symbols(extent for value in values for extent in value.type.shape)


def _named(value: Value, prefix: str) -> Value:
    return Value(f"{prefix}{value.name}", value.type) if prefix else value
