"""Reduce regions with the same computation to one form, independent of names, order and origins."""

from __future__ import annotations

from farrier.ir.graph import Constant, Graph, Node, Value


def canonical_region(region: Graph) -> tuple[Graph, tuple[int, ...]]:
    """Return the canonical form of a region, and for each of its inputs the position of that input
    in `region`.

    Nodes are in the post-order of a depth-first traversal from the outputs, operands first; values
    are numbered in the order in which the traversal reaches them. Shapes, dtypes, layouts,
    attributes and literals stay; unused inputs are dropped.

    before:
        @graph
        def conv_add(w: f32[8, 8, 1, 1], b: f32[8, 1, 1], image: f32[1, 8, 4, 4]):
            c: f32[1, 8, 4, 4] = Conv(image, w, origin='layer1/conv')
            y: f32[1, 8, 4, 4] = Add(c, b)
            return y

    after:
        @graph
        def kernel(x0: f32[1, 8, 4, 4], x1: f32[8, 8, 1, 1], x2: f32[8, 1, 1]):
            v0: f32[1, 8, 4, 4] = Conv(x0, x1)
            v1: f32[1, 8, 4, 4] = Add(v0, x2)
            return v1
    """
    walk = _Walk(region)
    outputs = tuple(walk.visit(value) for value in region.outputs)
    positions = {value.name: at for at, value in enumerate(region.inputs)}
    graph = Graph(
        "kernel", tuple(walk.inputs.values()), tuple(walk.constants), tuple(walk.nodes), outputs
    )
    return graph, tuple(positions[name] for name in walk.inputs)


class _Walk:
    def __init__(self, region: Graph) -> None:
        self._producers = region.producers()
        self._literals = {constant.value.name: constant for constant in region.constants}
        self._values: dict[str, Value] = {}
        self._count = 0
        self.inputs: dict[str, Value] = {}  # By the name in the region.
        self.constants: list[Constant] = []
        self.nodes: list[Node] = []

    def visit(self, value: Value) -> Value:
        """Return the canonical value of `value` after emitting all nodes that compute it."""
        canonical = self._values.get(value.name)
        if canonical is not None:
            return canonical
        producer = self._producers.get(value.name)
        if producer is not None:
            self._emit(producer)
        elif value.name in self._literals:
            new = Value(f"c{len(self.constants)}", value.type)
            self.constants.append(Constant(new, self._literals[value.name].content))
            self._values[value.name] = new
        else:
            new = Value(f"x{len(self.inputs)}", value.type)
            self.inputs[value.name] = new
            self._values[value.name] = new
        return self._values[value.name]

    def _emit(self, node: Node) -> None:
        inputs = tuple(self.visit(v) if v is not None else None for v in node.inputs)
        outputs = []
        for value in node.outputs:
            self._values[value.name] = Value(f"v{self._count}", value.type)
            outputs.append(self._values[value.name])
            self._count += 1
        self.nodes.append(Node(node.op, inputs, tuple(outputs), node.attrs, node.regions))
