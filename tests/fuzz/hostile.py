"""Models that are made to hurt: small files that ask for much, and graphs that never end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

node, info = helper.make_node, helper.make_tensor_value_info
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
HUGE = 1 << 62


def model_of(
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int = 21,
) -> bytes:
    """A model with an input x: f32[3]; constants are arrays, integers by default."""
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    declared = [info("x", FLOAT, [3])] if inputs is None else list(inputs)
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "hostile", declared, results, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=list(functions))
    return bytes(model.SerializeToString())


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field."""
    length, size = b"", len(payload)
    while True:
        length += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
        size >>= 7
        if not size:
            return bytes([number << 3 | 2]) + length + payload


def _nested_messages(depth: int) -> bytes:
    """GraphProto{node{attribute{g}}} within itself, deeper than any message class would write."""
    graph = b""
    for _ in range(depth):
        graph = _field(1, _field(5, _field(6, graph)))
    return onnx.ModelProto(ir_version=8).SerializeToString() + _field(7, graph)


def _nested_branches(depth: int) -> bytes:
    graph = helper.make_graph([node("Neg", ["x"], ["z"])], "g", [], [info("z", FLOAT, [3])])
    for _ in range(depth):
        branch = node("If", ["c"], ["z"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([branch], "g", [], [info("z", FLOAT, [3])])
    branch = node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
    return model_of([branch], inputs=[info("x", FLOAT, [3]), info("c", BOOL, [])])


def _function(name: str, nodes: Sequence[onnx.NodeProto]) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["a"], ["b"], list(nodes), opsets)


def _call(name: str, source: str, result: str) -> onnx.NodeProto:
    return node(name, [source], [result], domain="local")


def _functions_that_double(count: int) -> bytes:
    """F0 calls F1 twice, which calls F2 twice, and so on: 2^count nodes."""
    functions = [
        _function(f"F{i}", [_call(f"F{i + 1}", "a", "t"), _call(f"F{i + 1}", "t", "b")])
        for i in range(count)
    ]
    functions.append(_function(f"F{count}", [node("Neg", ["a"], ["b"])]))
    return model_of([_call("F0", "x", "y")], functions=functions)


def _loop(
    trips: int | None,
    nodes: Sequence[onnx.NodeProto],
    carried: str,
    parts: Sequence[str] = (),
    constants: dict[str, Any] | None = None,
) -> bytes:
    """A loop that carries x, with `trips` iterations or no end."""
    outputs = [info("go", BOOL, []), info(carried, FLOAT, None)]
    outputs += [info(part, FLOAT, None) for part in parts]
    body = helper.make_graph(
        [node("Identity", ["again"], ["go"]), *nodes],
        "body",
        [info("i", INT64, []), info("again", BOOL, []), info("s", FLOAT, None)],
        outputs,
    )
    results = ["y", *(f"all{i}" for i in range(len(parts)))]
    loop = node("Loop", ["trips" if trips is not None else "", "yes", "x"], results, body=body)
    weights = {"yes": np.array(True), **(constants or {})}
    if trips is not None:
        weights["trips"] = np.array(trips)
    return model_of([loop], weights, outputs=results)


def _loops_in_loops(depth: int, trips: int) -> bytes:
    """Each unrolls, because what it carries grows: trips^depth times."""
    nodes = [node("Concat", ["s", "s"], ["z"], axis=0), node("Slice", ["z", "l", "h"], ["n"])]
    returned = [info("go", BOOL, []), info("n", FLOAT, None)]
    parameters = [info("i", INT64, []), info("again", BOOL, []), info("s", FLOAT, None)]
    for _ in range(depth):
        goes = node("Identity", ["again"], ["go"])
        body = helper.make_graph([goes, *nodes], "body", parameters, returned)
        nodes = [node("Loop", ["trips", "yes", "s"], ["n"], body=body)]
    body = helper.make_graph(
        [node("Identity", ["again"], ["go"]), *nodes], "b", parameters, returned
    )
    loop = node("Loop", ["trips", "yes", "x"], ["y"], body=body)
    weights = {"yes": np.array(True), "trips": np.array(trips)}
    return model_of([loop], {**weights, "l": np.array([0]), "h": np.array([4])})


def _scan_of(length: int) -> bytes:
    body = helper.make_graph(
        [node("Add", ["s", "r"], ["n"])],
        "body",
        [info("s", FLOAT, [3]), info("r", FLOAT, [3])],
        [info("n", FLOAT, [3])],
    )
    scan = node("Scan", ["x", "rows"], ["y"], body=body, num_scan_inputs=1)
    return model_of([scan], inputs=[info("x", FLOAT, [3]), info("rows", FLOAT, [length, 3])])


def _doubling(op: str, count: int) -> bytes:
    """x joined with itself `count` times over."""
    nodes = [node(op, ["c", "c"], ["v0"], **({"axis": 0} if op == "Concat" else {}))]
    for i in range(count):
        attrs = {"axis": 0} if op == "Concat" else {}
        nodes.append(node(op, [f"v{i}", f"v{i}"], [f"v{i + 1}"], **attrs))
    nodes.append(node("Shape", [f"v{count}"], ["y"]))
    return model_of(nodes, {"c": np.ones(1, np.float32)})


def _chain(op: str, count: int, **attrs: Any) -> bytes:
    names = ["x", *(f"v{i}" for i in range(count))]
    nodes = [node(op, [a], [b], **attrs) for a, b in itertools.pairwise(names)]
    return model_of([*nodes, node("Neg", [names[-1]], ["y"])])


def _tensor(**fields: Any) -> bytes:
    """A model whose only constant is written field by field."""
    model = onnx.load_from_string(model_of([node("Identity", ["w"], ["y"])]))
    model.graph.initializer.append(TensorProto(name="w", **fields))
    return bytes(model.SerializeToString())


def _sparse(dims: Sequence[int], indices: Sequence[int], count: int) -> bytes:
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("w", FLOAT, [count], [1.0] * count),
        helper.make_tensor("i", INT64, [len(indices)], indices),
        list(dims),
    )
    model = onnx.load_from_string(model_of([node("Identity", ["w"], ["y"])]))
    model.graph.sparse_initializer.append(sparse)
    return bytes(model.SerializeToString())


def _external(location: str) -> bytes:
    model = onnx.load_from_string(model_of([node("Identity", ["w"], ["y"])]))
    tensor = model.graph.initializer.add(name="w", data_type=FLOAT, dims=[3], data_location=1)
    tensor.external_data.add(key="location", value=location)
    return bytes(model.SerializeToString())


def _external_inside(location: str) -> bytes:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[3], data_location=1)
    tensor.external_data.add(key="location", value=location)
    inner = helper.make_graph(
        [node("Constant", [], ["z"], value=tensor)], "g", [], [info("z", 1, [3])]
    )
    return model_of([node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)], {"c": True})


def _named(name: str) -> bytes:
    """The name stands wherever a model may have one."""
    nodes = [node("Neg", [name], [name + "1"], name=name), node("Abs", [name + "1"], [name + "2"])]
    inputs = [info(name, FLOAT, [name, 3])]
    model = onnx.load_from_string(model_of(nodes, inputs=inputs, outputs=[name + "2"]))
    model.graph.name = model.producer_name = model.doc_string = name
    return bytes(model.SerializeToString())


def _filled(*then: onnx.NodeProto, shape: Sequence[int] = (1 << 29,), **constants: Any) -> bytes:
    """Nodes that read `big`, which is 2 GiB of one value and takes no memory by itself."""
    fill = node("ConstantOfShape", ["n"], ["big"])
    weights = {"n": np.array(shape, np.int64), **constants}
    return model_of([fill, *then], weights)


def _ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


_LETTERS = "abcdefghijklmnopqrst"
_F = np.ones(1, np.float32)

HOSTILE: dict[str, Callable[[], bytes]] = {
    "messages nested 400 deep": lambda: _nested_messages(400),
    "messages nested 10000 deep": lambda: _nested_messages(10_000),
    "branches nested 9 deep, each twice": lambda: _nested_branches(9),
    "a function that calls itself": lambda: model_of(
        [_call("F", "x", "y")], functions=[_function("F", [_call("F", "a", "b")])]
    ),
    "functions that call each other": lambda: model_of(
        [_call("F", "x", "y")],
        functions=[_function("F", [_call("G", "a", "b")]), _function("G", [_call("F", "a", "b")])],
    ),
    "functions in a chain of 5000": lambda: model_of(
        [_call("F0", "x", "y")],
        functions=[
            *(_function(f"F{i}", [_call(f"F{i + 1}", "a", "b")]) for i in range(5000)),
            _function("F5000", [node("Neg", ["a"], ["b"])]),
        ],
    ),
    "functions that double 40 times": lambda: _functions_that_double(40),
    "functions that double 18 times": lambda: _functions_that_double(18),
    "a function named twice": lambda: model_of(
        [_call("F", "x", "y")],
        functions=[_function("F", [node("Neg", ["a"], ["b"])])] * 2,
    ),
    "a loop of 2^60 trips that stacks": lambda: _loop(
        1 << 60, [node("Add", ["s", "s"], ["n"])], "n", ["n"]
    ),
    "a loop of 2^60 trips": lambda: _loop(1 << 60, [node("Add", ["s", "s"], ["n"])], "n"),
    "a loop of 2^60 trips of nothing": lambda: _loop(1 << 60, [], "s"),
    "a loop without end that grows": lambda: _loop(
        None, [node("Concat", ["s", "s"], ["n"], axis=0)], "n"
    ),
    "a loop without end": lambda: _loop(None, [node("Neg", ["s"], ["n"])], "n"),
    "a loop that doubles 1000 times": lambda: _loop(
        1000, [node("Concat", ["s", "s"], ["n"], axis=0)], "n"
    ),
    "loops in loops that unroll": lambda: _loops_in_loops(3, 20),
    "a scan of 2^61 rows": lambda: _scan_of(1 << 61),
    "a scan of 2^31 rows": lambda: _scan_of(1 << 31),
    "an input of 2^62 elements": lambda: model_of(
        [node("Neg", ["x"], ["y"])], inputs=[info("x", FLOAT, [HUGE])]
    ),
    "an input whose size overflows 64 bits": lambda: model_of(
        [node("Neg", ["x"], ["y"])], inputs=[info("x", FLOAT, [1 << 32, 1 << 32])]
    ),
    "an input of rank 5000": lambda: model_of(
        [node("Neg", ["x"], ["y"])], inputs=[info("x", FLOAT, [1] * 5000)]
    ),
    "concatenated with itself 60 times": lambda: _doubling("Concat", 60),
    "added to itself 2000 times": lambda: _doubling("Add", 2000),
    "a chain of 20000 nodes": lambda: _chain("Neg", 20_000),
    "a chain of 3000 identities": lambda: _chain("Identity", 3000),
    "a tensor that claims terabytes": lambda: _tensor(
        data_type=FLOAT, dims=[1 << 40], raw_data=b"1234"
    ),
    "a tensor whose size overflows": lambda: _tensor(
        data_type=FLOAT, dims=[1 << 32, 1 << 32], raw_data=b""
    ),
    "a tensor of rank 10000": lambda: _tensor(
        data_type=FLOAT, dims=[1] * 10_000, raw_data=b"1234"
    ),
    "a tensor without elements and huge dims": lambda: _tensor(
        data_type=FLOAT, dims=[0, HUGE, HUGE], raw_data=b""
    ),
    "a tensor with negative dims": lambda: _tensor(data_type=FLOAT, dims=[-1, -3], raw_data=b""),
    "a tensor that is a segment": lambda: _tensor(
        data_type=FLOAT, dims=[1], raw_data=b"1234", segment=TensorProto.Segment(begin=0, end=HUGE)
    ),
    "four-bit elements that lack": lambda: _tensor(
        data_type=TensorProto.INT4, dims=[1 << 31], raw_data=b"12"
    ),
    "sparse indices out of range": lambda: _sparse([3], [HUGE], 1),
    "a sparse tensor of 2^62": lambda: _sparse([HUGE], [0], 1),
    "external data": lambda: _external("/etc/passwd"),
    "external data outside": lambda: _external("../../../../etc/passwd"),
    "external data in a nested constant": lambda: _external_inside("/dev/zero"),
    "a name with NUL": lambda: _named("a\0b"),
    "a name of lines": lambda: _named("a\nb\r\n"),
    "a name that is a path": lambda: _named("../../tmp/x"),
    "a name that is HTML": lambda: _named("<script>alert(1)</script>"),
    "a name that moves the cursor": lambda: _named("\x1b[2J\x1b]0;owned\a"),
    "a name of a megabyte": lambda: _named("n" * (1 << 20)),
    "ConstantOfShape of 2^62": lambda: model_of(
        [node("ConstantOfShape", ["n"], ["y"])], {"n": _ints(HUGE)}
    ),
    "ConstantOfShape that overflows": lambda: model_of(
        [node("ConstantOfShape", ["n"], ["y"])], {"n": _ints(1 << 32, 1 << 32)}
    ),
    "ConstantOfShape of rank 10000": lambda: model_of(
        [node("ConstantOfShape", ["n"], ["y"])], {"n": np.ones(10_000, np.int64)}
    ),
    "Expand to 2^62": lambda: model_of([node("Expand", ["x", "n"], ["y"])], {"n": _ints(HUGE, 3)}),
    "Tile by 2^62": lambda: model_of([node("Tile", ["x", "n"], ["y"])], {"n": _ints(HUGE)}),
    "Range to 2^62": lambda: model_of(
        [node("Range", ["a", "b", "c"], ["y"])],
        {"a": np.array(0), "b": np.array(HUGE), "c": np.array(1)},
    ),
    "Range of float steps": lambda: model_of(
        [node("Range", ["a", "b", "c"], ["y"])],
        {"a": np.float32(0), "b": np.float32(1e38), "c": np.float32(1e-38)},
    ),
    "Range to NaN": lambda: model_of(
        [node("Range", ["a", "b", "c"], ["y"])],
        {"a": np.float32(0), "b": np.float32("nan"), "c": np.float32(1)},
    ),
    "Pad by 2^62": lambda: model_of([node("Pad", ["x", "n"], ["y"])], {"n": _ints(HUGE, HUGE)}),
    "Pad by a negative huge": lambda: model_of(
        [node("Pad", ["x", "n"], ["y"])], {"n": _ints(-HUGE, 1)}
    ),
    "Resize by 1e30": lambda: model_of(
        [node("Resize", ["x", "", "s"], ["y"])], {"s": np.array([1e30], np.float32)}
    ),
    "Resize by NaN": lambda: model_of(
        [node("Resize", ["x", "", "s"], ["y"])], {"s": np.array([np.nan], np.float32)}
    ),
    "Resize to 2^62": lambda: model_of(
        [node("Resize", ["x", "", "", "n"], ["y"])], {"n": _ints(HUGE)}
    ),
    "OneHot of 2^62 classes": lambda: model_of(
        [node("OneHot", ["i", "d", "v"], ["y"])],
        {"i": _ints(0), "d": _ints(HUGE), "v": np.array([0, 1], np.float32)},
    ),
    "EyeLike": lambda: _filled(node("EyeLike", ["big"], ["y"]), shape=(1 << 14, 1 << 14)),
    "Einsum that squares and squares": lambda: model_of(
        [node("Einsum", ["x"] * 20, ["y"], equation=f"{','.join(_LETTERS)}->{_LETTERS}")]
    ),
    "Einsum of constants": lambda: _filled(
        node("Einsum", ["big", "big"], ["y"], equation="i,j->ij"), shape=(1 << 20,)
    ),
    "a huge constant reshaped": lambda: _filled(
        node("Reshape", ["big", "s"], ["y"]), s=_ints(1 << 10, -1)
    ),
    "a huge constant negated": lambda: _filled(node("Neg", ["big"], ["y"])),
    "a huge constant cast": lambda: _filled(
        node("Cast", ["big"], ["y"], to=INT64), shape=(1 << 27,)
    ),
    "a huge constant transposed": lambda: _filled(
        node("Transpose", ["big"], ["y"]), shape=(1 << 14, 1 << 14)
    ),
    "a huge constant summed": lambda: _filled(node("ReduceSum", ["big"], ["y"])),
    "a huge constant sorted": lambda: _filled(
        node("TopK", ["big", "k"], ["v", "i"]), node("Neg", ["v"], ["y"]), k=_ints(1)
    ),
    "a huge constant's nonzeros": lambda: _filled(node("NonZero", ["big"], ["y"])),
    "a huge constant sliced": lambda: _filled(
        node("Slice", ["big", "a", "b"], ["y"]), a=_ints(1), b=_ints(HUGE)
    ),
    "a huge constant gathered": lambda: _filled(
        node("Gather", ["big", "i"], ["y"]), i=_ints(*range(3))
    ),
    "a huge constant split": lambda: _filled(
        node("Split", ["big"], ["y", "z"], num_outputs=2), shape=(1 << 28,)
    ),
    "a huge constant cut into a sequence": lambda: _filled(
        node("SplitToSequence", ["big"], ["s"]),
        node("SequenceAt", ["s", "i"], ["y"]),
        i=np.array(0),
    ),
    "many huge constants": lambda: model_of(
        [
            *(node("ConstantOfShape", ["n"], [f"b{i}"]) for i in range(100)),
            node("Sum", [f"b{i}" for i in range(100)], ["y"]),
        ],
        {"n": _ints(1 << 28)},
    ),
    "Split into 2^40 parts": lambda: model_of([node("Split", ["x"], ["y"], num_outputs=1 << 40)]),
    "a Conv with huge strides": lambda: model_of(
        [node("Conv", ["i", "w"], ["y"], strides=[HUGE], dilations=[HUGE], pads=[HUGE, HUGE])],
        {"w": np.ones((1, 1, 1), np.float32)},
        inputs=[info("i", FLOAT, [1, 1, 8])],
    ),
    "a pool with a huge window": lambda: model_of(
        [node("AveragePool", ["i"], ["y"], kernel_shape=[1 << 40], pads=[1 << 39, 1 << 39])],
        inputs=[info("i", FLOAT, [1, 1, 8])],
    ),
    "a transposed convolution with a huge stride": lambda: model_of(
        [node("ConvTranspose", ["i", "w"], ["y"], strides=[1 << 50])],
        {"w": np.ones((1, 1, 1), np.float32)},
        inputs=[info("i", FLOAT, [1, 1, 8])],
    ),
    "DepthToSpace that overflows": lambda: model_of(
        [node("DepthToSpace", ["i"], ["y"], blocksize=1 << 32)],
        inputs=[info("i", FLOAT, [1, 4, 2, 2])],
    ),
    "SpaceToDepth by minus one": lambda: model_of(
        [node("SpaceToDepth", ["i"], ["y"], blocksize=-1)],
        inputs=[info("i", FLOAT, [1, 4, 2, 2])],
    ),
    "an LSTM of 2^40 units": lambda: model_of(
        [node("LSTM", ["i", "w", "r"], ["y"], hidden_size=1 << 40)],
        {"w": np.ones((1, 4, 1), np.float32), "r": np.ones((1, 4, 1), np.float32)},
        inputs=[info("i", FLOAT, [2, 1, 1])],
    ),
    "CenterCropPad to 2^62": lambda: model_of(
        [node("CenterCropPad", ["x", "n"], ["y"])], {"n": _ints(HUGE)}
    ),
    "a window of 2^50": lambda: model_of(
        [node("HannWindow", ["n"], ["y"])], {"n": np.array(1 << 50)}
    ),
    "mel weights of 2^40": lambda: model_of(
        [node("MelWeightMatrix", ["n", "d", "r", "l", "h"], ["y"])],
        {
            "n": np.array(1 << 40),
            "d": np.array(1 << 40),
            "r": np.array(8000),
            "l": np.float32(0),
            "h": np.float32(4000),
        },
    ),
    "a DFT of 2^40": lambda: model_of(
        [node("DFT", ["i", "n"], ["y"])],
        {"n": np.array(1 << 40)},
        inputs=[info("i", FLOAT, [1, 8, 1])],
        opset=20,
    ),
    "random numbers for 2^62": lambda: model_of([node("RandomNormal", [], ["y"], shape=[HUGE])]),
    "Multinomial of 2^40": lambda: model_of(
        [node("Multinomial", ["i"], ["y"], sample_size=1 << 40)], inputs=[info("i", FLOAT, [1, 3])]
    ),
    "n-grams without end": lambda: model_of(
        [
            node(
                "TfIdfVectorizer",
                ["i"],
                ["y"],
                mode="TF",
                min_gram_length=1,
                max_gram_length=1 << 40,
                max_skip_count=1 << 40,
                ngram_counts=[0],
                ngram_indexes=[1 << 50],
                pool_int64s=[1],
            )
        ],
        inputs=[info("i", INT64, [8])],
    ),
    "Col2Im to 2^40": lambda: model_of(
        [node("Col2Im", ["i", "n", "b"], ["y"])],
        {"n": _ints(1 << 40, 1 << 40), "b": _ints(1, 1)},
        inputs=[info("i", FLOAT, [1, 1, 4])],
    ),
    "a GridSample of a huge grid": lambda: model_of(
        [node("AffineGrid", ["t", "n"], ["y"])],
        {"n": _ints(1, 1, 1 << 30, 1 << 30)},
        inputs=[info("t", FLOAT, [1, 2, 3])],
    ),
    "a graph without nodes": lambda: model_of([], outputs=["x"]),
    "an output that is a constant": lambda: model_of([], {"y": _F}),
    "the same output 1000 times": lambda: model_of(
        [node("Neg", ["x"], ["y"])], outputs=["y"] * 1000
    ),
    "opset 10^9": lambda: model_of([node("Neg", ["x"], ["y"])], opset=10**9),
    "opset -1": lambda: model_of([node("Neg", ["x"], ["y"])], opset=-1),
    "opset 0": lambda: model_of([node("Neg", ["x"], ["y"])], opset=0),
}  # fmt: skip
