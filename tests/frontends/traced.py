"""A frontend for programs in the manner of torch.export, whose sizes may be values; it imports no
onnx.

A call is (result, operator, arguments). An argument names an earlier result, or is a number, or a
list of both. `python -m tests.frontends.traced FILE` compiles `PROGRAM`, runs it at `CASES` and
writes the outputs, named `case.output`.
"""

import sys

import numpy as np

import farrier
from farrier.frontends.builder import Builder, Declared, Numbers, RawNode, Source
from farrier.ir.types import DType

LAST = np.iinfo(np.int64).max  # As a tracer writes an omitted end of a slice.


def _node(b, origin, op, *operands, **attrs):
    return b.node(op, operands, attrs, origin=origin)[0]


def _arithmetic(op):
    def rule(b, origin, *numbers):
        with b.at(RawNode(op, [], [], {}, origin)):
            return Numbers(b)(op, *numbers)

    return rule


def _split(b, origin, x, sizes, dim):
    return b.node("Split", [x, sizes], {"axis": dim}, origin=origin, outputs=len(sizes))


def _scaled(b, origin, x, scale, mode):
    scales = _node(b, origin, "Expand", scale, [2])
    attrs = {"mode": mode, "coordinate_transformation_mode": "half_pixel", "axes": (2, 3)}
    return _node(b, origin, "Resize", x, "", scales, **attrs)


_NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
RULES = {
    "item": lambda b, o, x: _node(b, o, "Reshape", x, []),
    "size": lambda b, o, x, dim: b.shape(x)[dim],
    "add": _arithmetic("Add"),
    "mul": _arithmetic("Mul"),
    "floordiv": _arithmetic("Div"),
    "getitem": lambda b, o, parts, place: parts[place],
    "slice": lambda b, o, x, dim, start, end, step=1: _node(
        b, o, "Slice", x, [start], [end], [dim], [step]
    ),
    "view": lambda b, o, x, shape: _node(b, o, "Reshape", x, shape, allowzero=1),
    "expand": lambda b, o, x, shape: _node(b, o, "Expand", x, shape),
    "arange": lambda b, o, start, end, step: _node(b, o, "Range", start, end, step),
    "resized": lambda b, o, x, sizes: _node(
        b, o, "Resize", x, "", "", sizes, mode="nearest", axes=(2, 3), **_NEAREST
    ),
    "scaled": _scaled,
    "pad": lambda b, o, x, pads: _node(b, o, "Pad", x, pads),
    "full": lambda b, o, shape, value: _node(
        b, o, "ConstantOfShape", shape, dtype="f32", value=value
    ),
    "repeat": lambda b, o, x, repeats: _node(b, o, "Tile", x, repeats),
    "one_hot": lambda b, o, x, classes: _node(
        b, o, "OneHot", x, classes, b.constant(np.array([0, 1], np.float32))
    ),
    "tril": lambda b, o, x, diagonal: _node(b, o, "Trilu", x, diagonal, upper=0),
    "cumsum": lambda b, o, x, dim: _node(b, o, "CumSum", x, dim),
    "topk": lambda b, o, x, k: b.node("TopK", [x, [k]], {"axis": 0}, origin=o, outputs=2),
    "split": _split,
    "cat": lambda b, o, parts: _node(b, o, "Concat", *parts, axis=0),
}

INPUTS = [
    Declared("x", DType.F32, ("n", 6)),
    Declared("line", DType.F32, (1, 6)),
    Declared("image", DType.F32, (1, 2, "h", "w")),
    Declared("k", DType.I64, (1,)),
    Declared("most_k", DType.I64, (1,)),
    Declared("cut_at", DType.I64, (1,)),
    Declared("rows_k", DType.I64, (1,)),
    Declared("dim", DType.I64, ()),
    Declared("scale", DType.F32, (1,)),
]
PROGRAM = [
    ("count", "item", ["k"]),
    ("many", "item", ["most_k"]),
    ("cut", "item", ["cut_at"]),
    ("height", "item", ["rows_k"]),
    ("less", "mul", ["cut", -1]),
    ("n", "size", ["x", 0]),
    ("half", "floordiv", ["n", 2]),
    ("double", "mul", ["count", 2]),
    ("after", "add", ["count", 1]),
    ("left", "add", ["n", -3]),
    ("rest", "add", ["left", "less"]),
    ("top", "slice", ["x", 0, 0, "half"]),
    ("behind", "slice", ["x", 0, "count", LAST]),
    ("odd", "slice", ["x", 1, 1, "after", 2]),
    ("every", "slice", ["x", 0, 0, LAST, "after"]),
    ("pairs", "view", ["x", ["n", 2, -1]]),
    ("halves", "view", ["x", ["n", "k", -1]]),
    ("rows", "expand", ["line", ["height", 6]]),
    ("numbers", "arange", [3, "double", 2]),
    ("places", "arange", [0, "n", 1]),
    ("larger", "resized", ["image", ["after", "double"]]),
    ("nearest", "scaled", ["image", "scale", "nearest"]),
    ("linear", "scaled", ["image", "scale", "linear"]),
    ("padded", "pad", ["x", ["count", 0, 1, "after"]]),
    ("sevens", "full", [["n", "count"], 7.0]),
    ("repeated", "repeat", ["x", [1, "count"]]),
    ("hot", "one_hot", ["places", "double"]),
    ("lower", "tril", ["x", "count"]),
    ("sums", "cumsum", ["x", "dim"]),
    ("most", "topk", ["x", "many"]),
    ("largest", "getitem", ["most", 0]),
    ("parts", "split", ["x", ["cut", 3, "rest"], 0]),
    ("first", "getitem", ["parts", 0]),
    ("last", "getitem", ["parts", 2]),
    ("swapped", "cat", [["last", "first"]]),
]
OUTPUTS = (
    *("top", "behind", "odd", "every", "pairs", "halves", "rows", "numbers", "larger", "nearest"),
    *("linear", "padded", "sevens", "repeated", "hot", "lower", "sums", "largest", "swapped"),
)
CASES = [
    {"n": 7, "h": 3, "w": 4, "k": 2, "dim": 1, "scale": 2.0},
    {"n": 12, "h": 5, "w": 2, "k": 3, "dim": 0, "scale": 1.5},
    {"n": 4, "h": 2, "w": 6, "k": 1, "dim": -1, "scale": 0.5},
]


def feeds(case):
    """Return the inputs of a case."""
    random = np.random.default_rng(case["n"])
    return {
        "x": random.standard_normal((case["n"], 6)).astype(np.float32),
        "line": np.arange(6, dtype=np.float32)[None],
        "image": random.standard_normal((1, 2, case["h"], case["w"])).astype(np.float32),
        **{name: np.array([case["k"]]) for name in ("k", "most_k", "cut_at", "rows_k")},
        "dim": np.array(case["dim"]),
        "scale": np.float32([case["scale"]]),
    }


def build(b: Builder, program=PROGRAM, outputs=OUTPUTS) -> None:
    """Add the nodes of a program."""
    values = {declared: b.input(declared) for declared in b.inputs}

    def resolved(argument):
        if isinstance(argument, list):
            return [resolved(item) for item in argument]
        return values.get(argument, argument)

    for result, op, arguments in program:
        values[result] = RULES[op](b, result, *map(resolved, arguments))
    for name in outputs:
        b.output(name, values[name])


def main(path: str) -> None:
    """Compile, run and write the results."""
    session = farrier.compile(
        Source(INPUTS, build), threads=1, verify=False, typical={"n": 12}
    ).session()
    runs = [session.run(feeds(case)) for case in CASES]
    np.savez(path, **{f"{c}.{name}": run[name] for c, run in enumerate(runs) for name in run})
    assert "onnx" not in sys.modules, "the builder imports onnx"


if __name__ == "__main__":
    main(sys.argv[1])
