"""Group operators into kernels.

A group has one exit: the node whose outputs are used outside. Nodes are visited from the last to
the first; a node joins the group that contains all its readers if no work is then repeated, else it
starts a group of its own. So groups never depend on each other in a cycle, and a value that two
groups read is computed once. A sum of two convolutions is fused with the later one; the result of
the earlier one is read from memory.
"""

from __future__ import annotations

import dataclasses
import keyword
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from farrier.ir.control import Loop, control_of
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.types import DType, TensorType
from farrier.ops import Kind, lookup
from farrier.ops.builder import without_halo
from farrier.ops.conversion import CAST
from farrier.ops.own import RELAYOUT
from farrier.ops.slicing import ADJOIN
from farrier.ops.traits import Trait
from farrier.passes.attention import FLOATS, attention_regions
from farrier.passes.rewriting import join_origins, rename
from farrier.passes.views import is_view

# Maps a node to the node whose epilogue it is part of; only elementwise nodes have another than
# themselves.
Home: TypeAlias = Callable[[Node], Node | None]
# Maps nodes, by id, to the later node whose kernel computes them.
Joins: TypeAlias = Callable[[Graph, Home], Mapping[int, Node]]

# A larger kernel is not faster, and its code grows.
_MAX_NODES = 32


def _join_none(graph: Graph, home: Home) -> Mapping[int, Node]:
    return {}


def fuse(graph: Graph, joins: Joins = _join_none, attended: Collection[DType] = FLOATS) -> Graph:
    """Turn groups of nodes into `Fused` nodes, each with a region that one kernel computes.

    The region of a kernel contains at most one contraction, or one reduction, or one attention, or
    one group that `joins` selects. Elementwise operators and scalar literals around it are
    included. Values inside the region have no halo. Views of row-major tensors do not become
    kernels, since they share the memory of their operand; neither does control flow.

    before:
        @graph
        def g(x: f32[2, 3], r: f32[2, 4]):
            w: f32[3, 4] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0])
            half: f32[()] = constant(0.5)
            m: f32[2, 4] = MatMul(x, w)
            s: f32[2, 4] = Mul(m, half)
            y: f32[2, 4] = Add(s, r)
            return y

    after:
        @graph
        def g(x: f32[2, 3], r: f32[2, 4]):
            w: f32[3, 4] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0])
            def matmul_mul_add(x: f32[2, 3], w: f32[3, 4], r: f32[2, 4]):
                half: f32[()] = constant(0.5)
                m: f32[2, 4] = MatMul(x, w)
                s: f32[2, 4] = Mul(m, half)
                y: f32[2, 4] = Add(s, r)
                return y
            y: f32[2, 4] = Fused[matmul_mul_add](x, w, r)
            return y
    """
    graph = _copy_what_is_returned_twice(graph)
    groups = _Grouping(graph, joins, attended).groups()
    constants = {constant.value.name: constant for constant in graph.constants}
    returned = frozenset(value.name for value in graph.outputs)
    nodes = [_kernel(group, constants) if group.fused else group.nodes[0] for group in groups]
    used = {v.name for node in nodes for v in node.inputs if v is not None} | returned
    kept = tuple(constant for constant in graph.constants if constant.value.name in used)
    return Graph(graph.name, graph.inputs, kept, tuple(nodes), graph.outputs)


@dataclasses.dataclass(slots=True)
class _Group:
    """A group of nodes in execution order, the exit last.

    `home` is the contraction, reduction or injective node in whose kernel the elementwise nodes of
    the group are computed. `anchor` is None until that node has joined the group, and then is that
    node.
    """

    nodes: list[Node]
    home: Node | None
    anchor: Node | None
    fused: bool


class _Grouping:
    def __init__(self, graph: Graph, joins: Joins, attended: Collection[DType]) -> None:
        self._graph = graph
        self._returned = frozenset(value.name for value in graph.outputs)
        self._readers = graph.consumers()
        self._kinds = {id(node): _kind(node) for node in graph.nodes}
        self._positions = {id(node): at for at, node in enumerate(graph.nodes)}
        self._homes = self._find_homes()
        # Nodes that join the kernel of a reader, either all of these or none.
        self._taken = {
            **attention_regions(graph, attended),
            **joins(graph, lambda node: self._homes[id(node)]),
        }
        self._group_of: dict[int, _Group] = {}

    def groups(self) -> list[_Group]:
        """Return all groups in the order of their exits, which is an order in which they can
        run."""
        groups: list[_Group] = []
        for node in reversed(self._graph.nodes):
            group = self._group_to_join(node)
            if group is None:
                group = _Group([], *self._start(node))
                groups.append(group)
            elif group.anchor is None and self._kind(node) is not Kind.ELEMENTWISE:
                group.anchor = node
            group.nodes.insert(0, node)
            self._group_of[id(node)] = group
        return groups[::-1]

    def _kind(self, node: Node) -> Kind:
        return self._kinds[id(node)]

    def _start(self, node: Node) -> tuple[Node | None, Node | None, bool]:
        """Return (home, anchor, fused) for a new group whose exit is `node`, as in `_Group`;
        `fused` is False for views and control flow, which are not kernels."""
        kind = self._kind(node)
        if kind is Kind.VIEW or kind is Kind.CONTROL:
            return None, node, False
        if kind is Kind.ELEMENTWISE:
            return self._homes[id(node)], None, True
        return node, node, True

    def _find_homes(self) -> dict[int, Node | None]:
        """Return, by node id, the node whose kernel each elementwise node can join as an epilogue.

        This is the latest contraction (else reduction, else injective node) whose result reaches
        the elementwise node only through elementwise nodes of the same shape; None if there is
        none.
        """
        homes: dict[int, Node | None] = {}
        producers = self._graph.producers()
        for node in self._graph.nodes:
            if self._kind(node) is not Kind.ELEMENTWISE:
                homes[id(node)] = node
                continue
            shape = node.outputs[0].type.shape
            best: Node | None = None
            for value in node.inputs:
                source = producers.get(value.name) if value is not None else None
                if source is None or value is None or value.type.shape != shape:
                    continue
                if self._goes_with_its_reader(node, value):
                    continue
                home = homes[id(source)]
                if home is not None and self._stays_inside(value) and self._can_lead(home):
                    best = home if best is None or self._rank(home) > self._rank(best) else best
            homes[id(node)] = best
        return homes

    def _goes_with_its_reader(self, node: Node, value: Value) -> bool:
        """Check whether `node`, which widens the elements of `value`, should be computed in the
        kernel that reads its result. Memory then holds the narrower elements."""
        if value.type.dtype.is_narrow_float and CAST.matches(node):
            return True
        (result,) = node.outputs
        if result.type.dtype.bits <= value.type.dtype.bits:
            return False
        readers = self._readers.get(result.name, ())
        is_read = bool(readers) and result.name not in self._returned
        return is_read and all(
            self._kind(reader) is Kind.REDUCTION and _takes_prologue(reader, result)
            for reader in readers
        )

    def _rank(self, node: Node) -> tuple[int, int]:
        order = (Kind.INJECTIVE, Kind.REDUCTION, Kind.CONTRACTION)
        return order.index(self._kind(node)), self._positions[id(node)]

    def _can_lead(self, node: Node) -> bool:
        """Check whether elementwise nodes may follow `node` in its kernel, as an epilogue."""
        kinds = (Kind.CONTRACTION, Kind.REDUCTION, Kind.INJECTIVE)
        return self._kind(node) in kinds and len(node.outputs) == 1

    def _stays_inside(self, value: Value) -> bool:
        """Check whether all readers of `value` are elementwise nodes of the same shape."""
        return value.name not in self._returned and all(
            self._kind(reader) is Kind.ELEMENTWISE
            and reader.outputs[0].type.shape == value.type.shape
            for reader in self._readers.get(value.name, ())
        )

    def _group_to_join(self, node: Node) -> _Group | None:
        """Return the group that contains all readers of `node` if `node` may join that group; else
        None."""
        if len(node.outputs) != 1 or node.outputs[0].name in self._returned:
            return None
        value = node.outputs[0]
        readers = self._readers.get(value.name, [])
        groups = {id(group): group for group in (self._group_of[id(r)] for r in readers)}
        if len(groups) != 1:
            return None
        (group,) = groups.values()
        if id(node) in self._taken:
            return group
        if not group.fused or len(group.nodes) >= _MAX_NODES:
            return None
        if self._kind(node) is Kind.ELEMENTWISE:
            joins = self._joins_elementwise(node, value, readers, group)
        else:
            joins = self._joins_as_anchor(node, value, group)
        return group if joins else None

    def _joins_elementwise(
        self, node: Node, value: Value, readers: list[Node], group: _Group
    ) -> bool:
        home = self._homes[id(node)]
        if home is not None and home is not group.home:
            return False  # The node can join the epilogue of another kernel.
        for reader in readers:
            if self._kind(reader) is Kind.ELEMENTWISE:
                if reader.outputs[0].type.shape != value.type.shape:
                    return False
            elif not _takes_prologue(reader, value):
                return False
        return True

    def _joins_as_anchor(self, node: Node, value: Value, group: _Group) -> bool:
        if group.anchor is not None or group.home is not node or not self._can_lead(node):
            return False
        return self._stays_inside(value)


def _kind(node: Node) -> Kind:
    if node.op == "Fused":
        return Kind.OPAQUE
    if RELAYOUT.matches(node):
        return Kind.INJECTIVE  # Its output is elementwise, but not in the order of memory.
    kind = lookup(node.op).kind
    if ADJOIN.matches(node):
        return kind
    if is_view(node):
        return Kind.VIEW
    # Between two layouts, an operator that keeps the row-major order moves elements.
    return Kind.INJECTIVE if kind is Kind.VIEW else kind


def _takes_prologue(reader: Node, value: Value) -> bool:
    """Check whether the kernel of `reader` may compute its operand `value` wherever it reads an
    element. Sliding windows and gathers read elements repeatedly, so they would repeat the
    computation."""
    operator = lookup(reader.op)
    if not operator.has(Trait.READS_ONCE):
        return False
    readings = [operand for operand in reader.inputs if operand == value]
    return value in operator.data_operands(reader) and len(readings) == 1


def _kernel(group: _Group, constants: dict[str, Constant]) -> Node:
    """Return the `Fused` node of a group."""
    inside = {value.name for node in group.nodes for value in node.outputs}
    literals: dict[str, Constant] = {}
    inputs: dict[str, Value] = {}
    for node in group.nodes:
        static = lookup(node.op).static
        for position, value in enumerate(node.inputs):
            if value is None or value.name in inside:
                continue
            constant = constants.get(value.name)
            if constant is not None and (position in static or value.type.size == 1):
                literals[value.name] = constant
            else:
                inputs[value.name] = value
    outputs = group.nodes[-1].outputs
    bare = {
        value.name: Value(value.name, _without_halo(value.type))
        for node in group.nodes[:-1]
        for value in node.outputs
    }
    nodes = tuple(rename(node, bare) for node in group.nodes)
    region = Graph(
        _region_name(group.nodes), tuple(inputs.values()), tuple(literals.values()), nodes, outputs
    )
    origin = join_origins(group.nodes)
    return Node("Fused", region.inputs, outputs, regions=(region,), origin=origin)


def _without_halo(type: TensorType) -> TensorType:
    return dataclasses.replace(type, layout=without_halo(type.layout))


def _region_name(nodes: list[Node]) -> str:
    """Return a name such as `conv_add_relu`, made of the operators in order; the middle of a long
    chain is left out."""
    names = [node.op.lower() for node in nodes]
    name = "_".join(names if len(names) <= 6 else [*names[:3], "to", *names[-2:]])
    return f"{name}_" if keyword.iskeyword(name) else name  # `or`, `and`, `not`


def _copy_what_is_returned_twice(graph: Graph) -> Graph:
    """Insert copies for outputs that have no memory of their own: an input, a constant, a carried
    value of a loop, a view of another output, or part of another tensor."""
    views: dict[str, str] = {}
    owned = {value.name for value in graph.inputs}
    for node in graph.nodes:
        if ADJOIN.matches(node):
            owned |= {part.name for part in node.inputs if part is not None}
        elif isinstance(loop := control_of(node), Loop):
            owned |= {value.name for value in loop.results}
        elif _kind(node) is Kind.VIEW and node.inputs[0] is not None:
            source = node.inputs[0].name
            views[node.outputs[0].name] = views.get(source, source)
    owned |= {constant.value.name for constant in graph.constants}
    computed = {value.name for value in graph.outputs} - set(views) - owned
    names = {value.name for value in graph.values()}
    nodes: list[Node] = list(graph.nodes)
    outputs: list[Value] = []
    for value in graph.outputs:
        root = views.get(value.name, value.name)
        again = value in outputs
        if not again and (value.name in computed or root not in owned | computed):
            owned.add(root)
            outputs.append(value)
            continue
        other = Value(_unused(f"{value.name}_copy", names), value.type)
        if value.name in views and not again:
            # The output keeps its name; the value that had the name gets another one.
            nodes = [rename(node, {value.name: other}) for node in nodes]
            nodes.append(Node("Relayout", (other,), (value,)))
            outputs.append(value)
        else:
            nodes.append(Node("Relayout", (value,), (other,)))
            outputs.append(other)
    return dataclasses.replace(graph, nodes=tuple(nodes), outputs=tuple(outputs))


def _unused(hint: str, names: set[str]) -> str:
    name, count = hint, 0
    while name in names:
        count += 1
        name = f"{hint}_{count}"
    names.add(name)
    return name
