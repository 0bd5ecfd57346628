"""Infer the ranks of inputs whose shapes a model does not declare, from the nodes that read
them."""

from __future__ import annotations

import collections
from collections.abc import Iterator

import onnx

from farrier.frontends.onnx.importer.raw import qualified_name

_RANKS = {"Gemm": 2, "LSTM": 3, "GRU": 3, "RNN": 3}
# Operators of ai.onnx.ml with these prefixes take a matrix [examples, features].
_MATRICES = ("TreeEnsemble", "Linear", "SVM")
# The position of the operand that has the same rank as the first one.
_WEIGHTS = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}
_POOLS = ("MaxPool", "AveragePool", "LpPool")
_SCALES = {"Upsample": 1, "Resize": 2}  # The position of the operand with an element per axis.
# Operators whose first result has the rank of their first operand, or the highest of their ranks.
_KEEP = frozenset(
    [
        "Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Cast",
        "Ceil",
        "Celu",
        "Clip",
        "Cos",
        "Cosh",
        "Dropout",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "LeakyRelu",
        "Log",
        "LogSoftmax",
        "Mish",
        "Neg",
        "Not",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softmax",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "QuantizeLinear",
        "DequantizeLinear",
        "BatchNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "LRN",
        "Pad",
        "Slice",
        "Concat",
        "Split",
        "Resize",
        "Upsample",
        "CumSum",
        "Trilu",
        "ImageScaler",
        "ai.onnx.ml:Scaler",
        "ai.onnx.ml:Imputer",
        "ai.onnx.ml:Normalizer",
        "ai.onnx.ml:Binarizer",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Min",
        "Max",
        "Sum",
        "Mean",
        "PRelu",
        "Mod",
        "Where",
    ]
)


def rank_of(graph: onnx.GraphProto, name: str) -> int | None:
    """Return the rank of an input, or None if it cannot be inferred. It is inferred from the first
    node that determines it, among the nodes that read the input or an elementwise function of the
    input."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    declared = {
        info.name: len(info.type.tensor_type.shape.dim)
        for info in (*graph.value_info, *graph.output)
        if info.type.tensor_type.HasField("shape")
    }
    readers: dict[str, list[onnx.NodeProto]] = collections.defaultdict(list)
    for node in graph.node:
        for operand in set(node.input):
            readers[operand].append(node)
    waiting, seen = collections.deque([name]), {name}
    while waiting:
        value = waiting.popleft()
        if value in declared:
            return declared[value]
        for node in readers[value]:
            for rank in _determined_ranks(node, value, constants):
                return rank
            if qualified_name(node) in _KEEP and node.output[0] not in seen:
                seen.add(node.output[0])
                waiting.append(node.output[0])
    return None


def _determined_ranks(
    node: onnx.NodeProto, value: str, constants: dict[str, onnx.TensorProto]
) -> Iterator[int]:
    """Yield the rank of `value` if the node reads it as its first operand, and the node's operator,
    attributes or constant operands determine its rank. Yield nothing otherwise."""
    if node.input[0] != value:
        return
    op = qualified_name(node)
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if op in _RANKS:
        yield _RANKS[op]
    elif op.startswith("ai.onnx.ml:") and node.op_type.startswith(_MATRICES):
        yield 2
    elif op in _WEIGHTS and len(node.input) > _WEIGHTS[op]:
        weights = constants.get(node.input[_WEIGHTS[op]])
        if weights is not None:
            yield len(weights.dims)
    elif op in _POOLS and "kernel_shape" in attributes:
        yield 2 + len(attributes["kernel_shape"].ints)
    elif op == "Transpose" and "perm" in attributes:
        yield len(attributes["perm"].ints)
    elif op in _SCALES and len(node.input) > _SCALES[op]:
        scales = constants.get(node.input[_SCALES[op]])
        if scales is not None and scales.dims and scales.dims[0]:
            yield int(scales.dims[0])
