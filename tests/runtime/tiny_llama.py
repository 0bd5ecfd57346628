"""A decoder as language models are exported: embedding, layers with rotated positions and caches of
keys and values, and the token that follows."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEADS, SIZE, VOCABULARY, WIDTH, HIDDEN = 2, 16, 61, 32, 48


class Net:
    """Nodes and weights, as they are added."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def constant(self, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.weights)}"))
        return self.weights[-1].name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def matrix(self, rows, columns):
        values = self.generator.standard_normal((rows, columns)) / np.sqrt(rows)
        return self.constant(values.astype(np.float32))

    def __call__(self, op, *inputs, out="", **attributes):
        name = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name


def tiny_llama(layers=2, seed=3):
    """Inputs `ids` and `past_key_values.N.key` and `.value`; outputs `token` and `present.N.…`."""
    p = Net(seed)
    past = p("Shape", "past_key_values.0.key", start=2, end=3)
    total = p("Squeeze", p("Add", past, p("Shape", "ids", start=1, end=2)))
    step = p.constant(np.int64(1))
    positions = p("Unsqueeze", p("Range", p("Squeeze", past), total, step), p.ints(1))
    keys = p("Unsqueeze", p("Range", p.constant(np.int64(0)), total, step), p.ints(0))
    mask = p("LessOrEqual", keys, positions)
    mask = p("Where", mask, p.constant(np.float32(0)), p.constant(np.float32(-1e9)))
    rates = (1e4 ** -(np.arange(0, SIZE, 2) / SIZE)).astype(np.float32)[None]
    angles = p("Mul", p("Cast", positions, to=TensorProto.FLOAT), p.constant(rates))
    turns = [p("Concat", p(op, angles), p(op, angles), axis=1) for op in ("Cos", "Sin")]
    x = p("Gather", p.matrix(VOCABULARY, WIDTH), "ids")
    for layer in range(layers):
        x = _layer(p, x, layer, turns, mask)
    logits = p("MatMul", _normalized(p, x), p.matrix(WIDTH, VOCABULARY))
    p("ArgMax", logits, axis=-1, keepdims=0, out="token")
    caches = [f"{n}.{part}" for n in range(layers) for part in ("key", "value")]
    shape = [1, HEADS, "past", SIZE]
    graph = helper.make_graph(
        p.nodes,
        "llama",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "sequence"]),
            *(
                helper.make_tensor_value_info(f"past_key_values.{cache}", TensorProto.FLOAT, shape)
                for cache in caches
            ),
        ],
        [
            onnx.ValueInfoProto(name=name)
            for name in ("token", *(f"present.{cache}" for cache in caches))
        ],
        p.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _layer(p, x, layer, turns, mask):
    y = _normalized(p, x)
    q, k, v = (_heads(p, p("MatMul", y, p.matrix(WIDTH, HEADS * SIZE))) for _ in range(3))
    q, k = _rotated(p, q, turns), _rotated(p, k, turns)
    k, v = (
        p("Concat", f"past_key_values.{layer}.{part}", new, axis=2, out=f"present.{layer}.{part}")
        for part, new in (("key", k), ("value", v))
    )
    scores = p("MatMul", q, p("Transpose", k, perm=[0, 1, 3, 2]))
    scores = p("Add", p("Mul", scores, p.constant(np.float32(SIZE**-0.5))), mask)
    context = p("Transpose", p("MatMul", p("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    context = p("Reshape", context, p.ints(0, 0, HEADS * SIZE))
    x = p("Add", x, p("MatMul", context, p.matrix(HEADS * SIZE, WIDTH)))
    y = _normalized(p, x)
    gate = p("MatMul", y, p.matrix(WIDTH, HIDDEN))
    gate = p("Mul", p("Mul", gate, p("Sigmoid", gate)), p("MatMul", y, p.matrix(WIDTH, HIDDEN)))
    return p("Add", x, p("MatMul", gate, p.matrix(HIDDEN, WIDTH)))


def _normalized(p, x):
    squares = p("ReduceMean", p("Mul", x, x), p.ints(-1), keepdims=1)
    return p("Div", x, p("Sqrt", p("Add", squares, p.constant(np.float32(1e-5)))))


def _heads(p, x):
    return p("Transpose", p("Reshape", x, p.ints(0, 0, HEADS, SIZE)), perm=[0, 2, 1, 3])


def _rotated(p, x, turns):
    halves = [f"{x}.first", f"{x}.second"]
    p.nodes.append(helper.make_node("Split", [x], halves, axis=3, num_outputs=2))
    turned = p("Concat", p("Neg", halves[1]), halves[0], axis=3)
    return p("Add", p("Mul", x, turns[0]), p("Mul", turned, turns[1]))
