"""Rebuild a graph node by node: the part that passes have in common."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.ir.graph import Constant, Derived, Graph, Node, Value, attributes
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops.view import RESHAPE

if TYPE_CHECKING:
    import numpy.typing as npt


# In bytes; from this size on a derived constant is computed when it is packed, a smaller one at
# once.
_LARGE = 1 << 16


def derived(
    type: TensorType,
    operands: tuple[Constant, ...],
    function: Callable[..., npt.NDArray[Any]],
    key: str,
) -> npt.NDArray[Any] | Derived:
    """Return the content of a constant that `function`, identified by `key`, computes from the
    constants `operands`; the computation is deferred if possible."""
    content = Derived(type, operands, function, key)
    return content if type.nbytes >= _LARGE else content.made()


class Rewriter:
    """A graph under construction: nodes are emitted in order, and values may be replaced by others.

    The names of the graph's inputs and outputs never change, because they are the model's
    signature.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._constants = {constant.value.name: constant for constant in graph.constants}
        self._exact: dict[str, npt.NDArray[np.float64]] = {}
        self._producers: dict[str, Node] = {}
        self._replaced: dict[str, Value] = {}
        self._names = {value.name for value in graph.values()}
        self._uses = count_uses(graph)

    def resolve(self, value: Value) -> Value:
        """Return the value that has replaced `value`, or `value` itself."""
        while value.name in self._replaced:
            value = self._replaced[value.name]
        return value

    def resolve_inputs(self, node: Node) -> Node:
        """Return `node` with each input that was replaced by another value changed to that
        value."""
        inputs = tuple(self.resolve(v) if v is not None else None for v in node.inputs)
        return node if inputs == node.inputs else dataclasses.replace(node, inputs=inputs)

    def emit(self, node: Node) -> None:
        """Append a node whose inputs are resolved already."""
        for value in node.outputs:
            self._producers[value.name] = node

    def withdraw(self, node: Node) -> None:
        """Remove an emitted node whose outputs nothing reads any more."""
        for value in node.outputs:
            del self._producers[value.name]

    def replace(self, old: Value, new: Value) -> None:
        """Let all further readers of `old` read `new` instead."""
        self._replaced[old.name] = new
        self._uses[new.name] += self._uses[old.name]

    def producer(self, value: Value | None) -> Node | None:
        """Return the emitted node that computes `value`, or None."""
        return self._producers.get(value.name) if value is not None else None

    def single_use(self, value: Value) -> bool:
        """Check whether exactly one node reads `value`, and the graph does not return it."""
        return self._uses[value.name] == 1

    def constant_of(self, value: Value | None) -> Constant | None:
        """Return the constant that defines `value`; None for a value known only at run time."""
        return self._constants.get(value.name) if value is not None else None

    def data(self, value: Value | None) -> npt.NDArray[Any] | None:
        """Return the array of a constant value, caching a derived one; None for a value known only
        at run time."""
        constant = self.constant_of(value)
        return constant.data if constant is not None else None

    def exact(self, value: Value | None) -> npt.NDArray[np.float64] | None:
        """Return the data of a constant of floats in float64. If the values before their rounding
        to the constant's dtype are known, return these. Return None for any other value."""
        if value is not None and value.name in self._exact:
            return self._exact[value.name]
        data = self.data(value)
        return None if data is None else data.astype(np.float64)

    def constant(
        self,
        content: npt.NDArray[Any] | Derived,
        hint: str,
        exact: npt.NDArray[np.float64] | None = None,
    ) -> Value:
        """Add a constant named after `hint`, and return its value; a constant with dims among its
        elements has dtype i64. `exact` is the content before rounding, for the computation of
        further constants."""
        if isinstance(content, Derived):
            type = content.type
        else:
            dtype = DType.I64 if content.dtype == object else DType.from_numpy(content.dtype)
            type = TensorType(dtype, content.shape)
        value = Value(self.fresh(hint), type)
        self.define(value, content)
        if exact is not None:
            self._exact[value.name] = exact
        return value

    def define(self, value: Value, content: npt.NDArray[Any] | Derived) -> None:
        """Turn `value` into a constant with this content."""
        if not isinstance(content, Derived):
            content = np.asarray(content).view()
            content.flags.writeable = False
        self._constants[value.name] = Constant(value, content)

    def fresh(self, hint: str) -> str:
        """Return an unused name: `hint`, or `hint_1`, `hint_2`, … if `hint` is taken."""
        name, count = hint, 0
        while name in self._names:
            count += 1
            name = f"{hint}_{count}"
        self._names.add(name)
        return name

    def finish(self) -> Graph:
        """Return the rebuilt graph. Constants that nothing reads are left to
        eliminate-dead-code."""
        nodes = list({id(node): node for node in self._producers.values()}.values())
        renamed: dict[str, Value] = {}
        outputs: list[Value] = []
        computed = set(self._producers)
        returned = {value.name for value in self._graph.outputs}
        new_outputs: dict[str, Value] = {}  # An output may be returned twice.
        for old in self._graph.outputs:
            new = self.resolve(old)
            if new.name == old.name or old.name in new_outputs:
                outputs.append(new_outputs.get(old.name, new))
                continue
            # The value that replaced an output takes its name, unless it has one to keep.
            kept = new_outputs[old.name] = Value(old.name, new.type)
            if new.name in computed and new.name not in returned and new.name not in renamed:
                renamed[new.name] = kept
            else:
                nodes.append(Node("Identity", (new,), (kept,)))
            outputs.append(kept)
        if renamed:
            nodes = [rename(node, renamed) for node in nodes]
        constants = tuple(c for name, c in self._constants.items() if name not in new_outputs)
        return Graph(self._graph.name, self._graph.inputs, constants, tuple(nodes), tuple(outputs))


class Replacement:
    """A builder of the nodes that replace `node`. Names of new values start with the name of its
    output."""

    def __init__(self, node: Node, rewriter: Rewriter) -> None:
        self._node, self._rewriter = node, rewriter
        self._nodes: list[Node] = []

    def add(
        self, op: str, inputs: Iterable[Value | None], kind: TensorType, hint: str, **attrs: Any
    ) -> Value:
        """Append a node with these inputs and attributes, and return its output, a new value of
        type `kind` whose name ends with `hint`."""
        value = Value(self._rewriter.fresh(f"{self._node.outputs[0].name}_{hint}"), kind)
        origin = self._node.origin
        self._nodes.append(Node(op, tuple(inputs), (value,), attributes(**attrs), (), origin))
        return value

    def reshape(self, value: Value, shape: Shape, hint: str) -> Value:
        """Return `value` reshaped to `shape`: the output of a new Reshape node, or `value` itself
        if it has that shape already."""
        if value.type.shape == shape:
            return value
        kind = TensorType(value.type.dtype, shape)
        to = extents_constant(shape, self._rewriter)
        return self.add("Reshape", (value, to), kind, hint, allowzero=0)

    def finish(self) -> tuple[Node, ...]:
        """Return the nodes; the output of the last one becomes the output of the replaced node."""
        *nodes, last = self._nodes
        return (*nodes, dataclasses.replace(last, outputs=self._node.outputs))


def extents_constant(shape: Shape, rewriter: Rewriter) -> Value:
    """Add an i64 constant with the extents of a shape, some of which may be dims."""
    is_known = all(isinstance(extent, int) for extent in shape)
    return rewriter.constant(np.array(list(shape), np.int64 if is_known else object), "shape")


def rename(node: Node, renamed: dict[str, Value]) -> Node:
    """Return `node` with values replaced according to `renamed`, a mapping by old name."""
    inputs = tuple(renamed.get(v.name, v) if v is not None else None for v in node.inputs)
    outputs = tuple(renamed.get(v.name, v) for v in node.outputs)
    if inputs == node.inputs and outputs == node.outputs:
        return node
    return dataclasses.replace(node, inputs=inputs, outputs=outputs)


def count_uses(graph: Graph) -> Counter[str]:
    """Return the number of reads of each value by its name; being returned by the graph counts as
    one."""
    uses = Counter(v.name for node in graph.nodes for v in node.inputs if v is not None)
    uses.update(value.name for value in graph.outputs)
    return uses


def join_origins(nodes: Iterable[Node]) -> str:
    """Return the combined origin (the names of the ONNX nodes) of a node that replaces several."""
    return ",".join(dict.fromkeys(node.origin for node in nodes if node.origin))


def is_value(data: npt.NDArray[Any] | None, number: float) -> bool:
    """Check whether every element of a constant equals `number`."""
    # For most weights the first element already differs.
    if data is None or not data.size or data.flat[0] != number:
        return False
    return bool((data == number).all())


def beneath(value: Value, rewriter: Rewriter) -> Value:
    """Return the value whose memory `value` shares, by following views to their operands. Return
    `value` itself if it is not a view."""
    while RESHAPE.matches(node := rewriter.producer(value)) and node.inputs[0] is not None:
        value = node.inputs[0]
    return value
