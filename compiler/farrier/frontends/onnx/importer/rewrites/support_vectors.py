"""Rewrite support vector machines of ai.onnx.ml to kernels between examples and support vectors,
and weighted sums."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.limits import NEWEST_OPSET
from farrier.frontends.onnx.importer.rewrites.scores import (
    bind_labels,
    bind_scores,
    finished,
    labels_of,
    rows_of,
    transformed,
)
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ops import Mismatch, NotSupported
from farrier.ops.operator import differ

Matrix = npt.NDArray[np.float32]
# These constants are those of LIBSVM, which ONNX Runtime adopts.
_LEAST = 1e-7  # The least probability of either class of a pair.
_PRECISION = 0.005  # Coupling stops at this error, divided by the number of classes.
_MOST_SWEEPS = 100  # Coupling stops after this number of iterations over all classes.


def svm_regressor(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite SVMRegressor: the weighted sum of kernels plus rho, or with `one_class` its sign. A
    node without support vectors is a linear model."""
    x, attrs = _as_f32(node, scope), node.attrs
    weights = np.array(attrs.get("coefficients", ()), np.float32)[:, None]
    values = _kernels(node, x, int(attrs.get("n_supports", 0)), scope)
    score = _sum(values, weights, _rho(node)[:1], scope)
    if attrs.get("one_class", 0):
        zero, inside, outside = (scope.constant(np.array(v, np.float32)) for v in (0, 1, -1))
        score = scope.add("Where", scope.add("Greater", score, zero), inside, outside)
    return finished(node, score, attrs.get("post_transform", "NONE"), scope)


def svm_classifier(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite SVMClassifier: a decision for each pair of classes, and the label of the class that
    wins most of them. The scores are probabilities if the node has `prob_a`, else decisions. A node
    without support vectors is a linear model."""
    x, attrs = _as_f32(node, scope), node.attrs
    labels = labels_of(attrs, "classlabels_ints")
    sizes = list(attrs.get("vectors_per_class", ()))
    transform = attrs.get("post_transform", "NONE")
    if not sum(sizes):
        weights = _matrix(node, "coefficients", len(labels)).T
        scores = _sum(_kernels(node, x, 0, scope), weights, _rho(node)[:1], scope)
        bind_labels(node, scope.add("ArgMax", scores, axis=1, keepdims=0), labels, scope)
        bind_scores(node, transformed(scores, transform, scope), scope)
        return []
    if len(sizes) != len(labels) or len(labels) < 2:
        raise Mismatch(f"{len(labels)} labels for the support vectors of {len(sizes)} classes")
    values = _kernels(node, x, sum(sizes), scope)
    decisions = _sum(values, _of_pairs(node, sizes), _rho(node), scope)
    bind_labels(node, _winners(decisions, len(labels), scope), labels, scope)
    if attrs.get("prob_a"):
        decisions = _probabilities(node, decisions, len(labels), scope)
    elif len(labels) == 2:
        bind_scores(node, _both(decisions, transform, scope), scope)
        return []
    bind_scores(node, transformed(decisions, transform, scope), scope)
    return []


def _as_f32(node: RawNode, scope: ImportScope) -> str:
    x = rows_of(node.inputs[0], scope)
    return x if str(scope.dtype(x)) == "f32" else scope.add("Cast", x, to="f32")


def _rho(node: RawNode) -> Matrix:
    return np.array(node.attrs.get("rho", (0.0,)), np.float32)


def _matrix(node: RawNode, name: str, rows: int) -> Matrix:
    values = np.array(node.attrs.get(name, ()), np.float32)
    if rows < 1 or not len(values) or len(values) % rows:
        raise Mismatch(f"{len(values)} {name} for {rows} rows")
    return values.reshape(rows, -1)


def _kernels(node: RawNode, x: str, count: int, scope: ImportScope) -> str:
    """Return the kernel values of examples and support vectors, [examples, count], or the examples
    themselves if `count` is 0."""
    features = scope.shape(x)[1]
    if not count:
        return x
    vectors = _matrix(node, "support_vectors", count)
    if differ(vectors.shape[1], features):
        raise Mismatch(f"support vectors of {vectors.shape[1]} features for {features}")
    gamma, offset, degree = (*node.attrs.get("kernel_params", ()), 0.0, 0.0, 0.0)[:3]

    def number(value: float) -> str:
        return scope.constant(np.array(value, np.float32))

    kind = node.attrs.get("kernel_type", "LINEAR")
    if kind == "RBF":  # The sum of (x - v)², as x² - 2xv + v² would cancel digits.
        # The vectors lie along the last axis, so that a machine's vectors hold one feature of them.
        columns, axis = np.ascontiguousarray(vectors.T), scope.constant(ints([1]))
        wide = scope.add("Unsqueeze", x, [2])
        apart = scope.add("Sub", wide, scope.constant(columns))
        distance = scope.add("ReduceSumSquare", apart, axis, keepdims=0)
        return scope.add("Exp", scope.add("Mul", distance, number(-gamma)))
    product = scope.add("MatMul", x, scope.constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    scaled = scope.add("Add", scope.add("Mul", product, number(gamma)), number(offset))
    match kind:
        case "POLY":
            return scope.add("Pow", scaled, number(degree))
        case "SIGMOID":
            return scope.add("Tanh", scaled)
    raise NotSupported(f"the kernel_type {kind!r}")


def _sum(values: str, weights: Matrix, offsets: Matrix, scope: ImportScope) -> str:
    """Return the name of values · weights + offsets. Raises Mismatch if the sizes do not match."""
    if differ(weights.shape[0], scope.shape(values)[1]) or len(offsets) not in (
        1,
        weights.shape[1],
    ):
        raise Mismatch(
            f"coefficients {weights.shape} and {len(offsets)} rho for values {scope.shape(values)}"
        )
    product = scope.add("MatMul", values, scope.constant(np.ascontiguousarray(weights)))
    return scope.add("Add", product, scope.constant(offsets))


def _of_pairs(node: RawNode, sizes: list[int]) -> Matrix:
    """Return the matrix [support vectors, pairs] of the weights for deciding between each pair of
    classes i < j. In the column of a pair, the support vectors of class i have the coefficients of
    row j - 1, those of class j the coefficients of row i, and all others 0."""
    coefficients = _matrix(node, "coefficients", len(sizes) - 1)
    if coefficients.shape[1] != sum(sizes):
        raise Mismatch(f"coefficients {coefficients.shape} for {sum(sizes)} support vectors")
    ends = list(itertools.accumulate(sizes))
    own = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    columns = []
    for i, j in itertools.combinations(range(len(sizes)), 2):
        column = np.zeros(sum(sizes), np.float32)
        column[own[i]] = coefficients[j - 1, own[i]]
        column[own[j]] = coefficients[i, own[j]]
        columns.append(column)
    return np.stack(columns, 1)


def _winners(decisions: str, count: int, scope: ImportScope) -> str:
    """Return the class that wins most decisions; of several such classes the first. A decision
    above 0 is won by the first class of its pair, any other one by the second class."""
    pairs = list(itertools.combinations(range(count), 2))
    won, base = np.zeros((len(pairs), count), np.float32), np.zeros(count, np.float32)
    for position, (i, j) in enumerate(pairs):
        won[position, i], won[position, j] = 1, -1
        base[j] += 1
    zero = scope.constant(np.array(0, np.float32))
    first = scope.add("Cast", scope.add("Greater", decisions, zero), to="f32")
    votes = scope.add("Add", scope.add("MatMul", first, scope.constant(won)), scope.constant(base))
    return scope.add("ArgMax", votes, axis=1, keepdims=0)


def _both(decision: str, transform: str, scope: ImportScope) -> str:
    """Return the scores [N, 2] of both classes, computed from a column of decisions as ONNX Runtime
    does for a model without probabilities."""
    if transform == "PROBIT":
        raise NotSupported("PROBIT of a single score for two classes")
    opposite = scope.add("Neg", decision)
    if transform not in ("NONE", "LOGISTIC"):
        opposite = scope.add("Sub", scope.constant(np.array(1, np.float32)), decision)
    both = scope.add("Concat", opposite, decision, axis=1)
    return scope.add("Sigmoid", both) if transform == "LOGISTIC" else both


def _probabilities(node: RawNode, decisions: str, count: int, scope: ImportScope) -> str:
    """Return the probabilities of the classes: Platt's sigmoids of the pairwise decisions, combined
    by `_coupling`."""
    pairs = list(itertools.combinations(range(count), 2))
    a, b = (np.array(node.attrs.get(name, ()), np.float32) for name in ("prob_a", "prob_b"))
    if not len(a) == len(b) == len(pairs):
        raise Mismatch(f"{len(a)} prob_a and {len(b)} prob_b for {len(pairs)} pairs of classes")

    def c(value: Any) -> str:
        return scope.constant(np.array(value, np.float32))

    inner = scope.add("Add", scope.add("Mul", decisions, c(a)), c(b))
    first = scope.add("Sigmoid", scope.add("Neg", inner))
    first = scope.add("Clip", first, c(_LEAST), c(1 - _LEAST))
    # r[i, j] is the probability of class i, given that it is i or j; r[j, i] is 1 - r[i, j].
    spread, base = np.zeros((len(pairs), count, count)), np.zeros((count, count))
    for position, (i, j) in enumerate(pairs):
        spread[position, i, j], spread[position, j, i], base[j, i] = 1, -1, 1
    flat = scope.add("MatMul", first, c(spread.reshape(len(pairs), -1)))
    shape = scope.constant(ints([-1, count, count]))
    r = scope.add("Add", scope.add("Reshape", flat, shape), c(base))
    back = scope.add("Transpose", r, perm=(0, 2, 1))
    mixed = scope.add("Neg", scope.add("Mul", r, back))
    own = scope.add("ReduceSumSquare", r, [1], keepdims=1)
    q = scope.add("Add", mixed, scope.add("Mul", own, c(np.eye(count))))
    zero = scope.add("Mul", own, c(0))
    start = scope.add("Squeeze", zero, [1])
    start = scope.add("Add", start, c(1 / count))
    operands = {"q": scope.entry(q), "start": scope.entry(start)}
    (coupled,) = scope.inline(_coupling(count), operands, NEWEST_OPSET)
    return scope.bind("", coupled)


def _coupling(count: int) -> onnx.GraphProto:
    """Return the graph that combines pairwise probabilities to class probabilities by the second
    method of Wu, Lin and Weng (2004).

    For each example it minimizes pᵀQp over probabilities p, coordinate by coordinate, until the
    error is small. ONNX Runtime stops at the same error, so the exact minimum would differ from its
    results.
    """
    body = _GraphBuilder()
    product = body("MatMul", "q", body("Unsqueeze", "p", body.ints([2])))
    qp = body("Squeeze", product, body.ints([2]))
    pqp = body("ReduceSum", body("Mul", "p", qp), body.ints([1]), keepdims=1)
    error = body("Abs", body("Sub", qp, pqp))
    worst = body("ReduceMax", error, body.ints([1]), keepdims=1)
    is_open = body("Not", body("Less", worst, body.floats(_PRECISION / count)))
    active, p, unit = body("Cast", is_open, to=1), "p", body.floats(1)
    for t in range(count):
        row = body("Gather", "q", body.ints(t), axis=1)
        own = body("Gather", row, body.ints([t]), axis=1)
        at = body("Gather", qp, body.ints([t]), axis=1)
        step = body("Mul", body("Div", body("Sub", pqp, at), own), active)
        scale = body("Add", unit, step)
        moved = body("Add", p, body("Mul", step, body.floats(np.eye(count)[t])))
        p = body("Div", moved, scale)
        gain = body("Add", body("Mul", step, own), body("Mul", at, body.floats(2)))
        pqp = body("Add", pqp, body("Mul", step, gain))
        pqp = body("Div", body("Div", pqp, scale), scale)
        qp = body("Div", body("Add", qp, body("Mul", step, row)), scale)
    again = body("Cast", body("ReduceMax", body("Cast", is_open, to=6), keepdims=0), to=9)
    kinds = onnx.TensorProto
    info = onnx.helper.make_tensor_value_info
    loop = onnx.helper.make_graph(
        body.nodes,
        "step",
        [info("i", kinds.INT64, []), info("go", kinds.BOOL, []), info("p", kinds.FLOAT, None)],
        [info(again, kinds.BOOL, []), info(p, kinds.FLOAT, None)],
    )
    outer = _GraphBuilder()
    trips = outer.ints(_MOST_SWEEPS)
    result = outer("Loop", trips, "", "start", body=loop)
    inputs = [info(name, kinds.FLOAT, None) for name in ("q", "start")]
    outputs = [info(result, kinds.FLOAT, None)]
    return onnx.helper.make_graph(outer.nodes, "coupling", inputs, outputs)


class _GraphBuilder:
    """A builder of a graph's nodes, each with one output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []

    def __call__(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, inputs, [name], **attrs))
        return name

    def ints(self, value: Any) -> str:
        return self._constant(np.array(value, np.int64))

    def floats(self, value: Any) -> str:
        return self._constant(np.array(value, np.float32))

    def _constant(self, value: npt.NDArray[Any]) -> str:
        return self("Constant", value=onnx.numpy_helper.from_array(value))
