"""Every dumped stage of every kind of model reads back and prints the same text."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from bench import models
from farrier.errors import StorageError, UsageError
from farrier.ir.constants import ConstantFiles, StoredConstants
from farrier.ir.graph import Constant, Derived, Graph, Value
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.types import DType, TensorType
from tests.control_flow.test_models import branching, looping
from tests.ir.dumps import dumped

node = helper.make_node
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def model(nodes, inputs, outputs, constants=None, opset=17):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def decoder(width=32, heads=4, vocabulary=64):
    """A layer of a decoder as exporters write it: shapes computed from shapes, a mask from Range;
    the names of its dims are not identifiers."""
    rng = np.random.default_rng(0)
    constants = {"table": rng.standard_normal((vocabulary, width)).astype("f4")}
    constants |= {f"w{p}": rng.standard_normal((width, width)).astype("f4") for p in "qkvo"}
    constants |= {"first": [0], "second": [1], "heads": [heads, width // heads], "width": [width]}
    constants |= {"zero": 0, "one": 1, "hidden": np.float32(-1e9), "seen": np.float32(0)}
    nodes = [
        node("Gather", ["table", "ids"], ["h"]),
        node("Shape", ["ids"], ["shape"]),
        node("Gather", ["shape", "first"], ["batch"]),
        node("Gather", ["shape", "second"], ["length"]),
        node("Concat", ["batch", "length", "heads"], ["split"], axis=0),
        node("Concat", ["batch", "length", "width"], ["whole"], axis=0),
        node("Squeeze", ["length"], ["count"]),
        node("Range", ["zero", "count", "one"], ["places"]),
        node("Unsqueeze", ["places", "second"], ["rows"]),
        node("Unsqueeze", ["places", "first"], ["columns"]),
        node("Less", ["rows", "columns"], ["later"]),
        node("Where", ["later", "hidden", "seen"], ["mask"]),
    ]
    for part in "qkv":
        nodes.append(node("MatMul", ["h", f"w{part}"], [f"{part}0"]))
        nodes.append(node("Reshape", [f"{part}0", "split"], [f"{part}1"]))
        order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
        nodes.append(node("Transpose", [f"{part}1"], [part], perm=order))
    nodes += [
        node("MatMul", ["q", "k"], ["products"]),
        node("Add", ["products", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["values"]),
        node("Transpose", ["values"], ["turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "whole"], ["joined"]),
        node("MatMul", ["joined", "wo"], ["out"]),
        node("Add", ["h", "out"], ["y"]),
    ]
    odd = ("ids", INT64, ["class", 'the "length"\n+ 1 # é'])
    return model(nodes, [odd], [("y", FLOAT)], constants)


def test_open_dims_and_hot_sizes(tmp_path):
    shapes = {"ids": ("batch:1..4", "seq:1..64")}
    hot = ({"batch": 1, "seq": 16}, {"batch": 2, "seq": 7})
    texts = dumped(tmp_path, decoder(), shapes, hot)
    assert "constant([s0, s1, 4, 8])" in texts["0-import.ir"]
    assert {"0-import-hot1.ir", "1-prepare-hot0.ir", "2-optimize-hot1.ir"} <= texts.keys()
    kernels = [name for name in texts if name.startswith("3-partition/")]
    nests = [name for name in texts if name.startswith("7-lower/")]
    assert len(kernels) >= 6
    assert {name.partition("/")[2] for name in kernels} <= {n.partition("/")[2] for n in nests}
    for name in nests:
        passes = f"7-lower-passes/{name.partition('/')[2].removesuffix('.ir')}/"
        steps = sorted(step for step in texts if step.startswith(passes))
        assert steps[0] == f"{passes}0-schedule.ir"
        assert all(texts[step] != texts[later] for step, later in itertools.pairwise(steps))
        assert texts[steps[-1]] == texts[name]
    assert any(step.endswith("1-partition-loops.ir") for step in texts)


BUILT = {
    "resnet18": lambda: models.build("resnet18", size=32, width=8, classes=10),
    "resnet50": lambda: models.build("resnet50", size=32, width=8, classes=10),
    "mobilenet_v2": lambda: models.build("mobilenet_v2", size=32, classes=10, stages=2),
    "bert_base": lambda: models.build("bert_base", layers=1, width=32, heads=2, tokens=9),
    "vit_b16": lambda: models.build("vit_b16", layers=1, width=32, heads=2, size=32),
}


@pytest.mark.parametrize("name", BUILT)
def test_models_of_the_bench(name, tmp_path):
    texts = dumped(tmp_path, BUILT[name]())
    assert len(texts) > 10
    stored = list((tmp_path / "constants").iterdir())
    used = "".join(texts.values())
    assert stored
    assert all(path.stem in used for path in stored)


def test_instructions_after_each_pass_that_changed_them(tmp_path):
    dumped(tmp_path, BUILT["resnet18"](), until="codegen", target="rpi5")
    kernels = {path.stem for path in (tmp_path / "7-lower").iterdir()}
    folders = list((tmp_path / "8-codegen-passes").iterdir())
    assert {folder.name for folder in folders} == kernels
    for folder in folders:
        first, *others = sorted(path.name for path in folder.iterdir())
        assert first == "0-instructions.txt"
        assert others in ([], ["1-pair-vectors.txt"])
        assert f"@{folder.name}(" in (folder / first).read_text(encoding="utf-8")
    assert any((folder / "1-pair-vectors.txt").exists() for folder in folders)


def test_control_flow(tmp_path):
    """Constants of regions too; a symbol for how often a loop runs."""
    dumped(tmp_path / "if", branching("c", (5, 3)))
    texts = dumped(tmp_path / "loop", looping("n", "c", "below", [node("Neg", ["s"], ["part"])]))
    assert "dim(0, " in texts["0-import.ir"]


def test_capacities_and_counted_dims(tmp_path):
    nodes = [
        node("Range", ["zero", "n", "one"], ["r"]),
        node("Mod", ["r", "three"], ["rest"]),
        node("NonZero", ["rest"], ["y"]),
    ]
    constants = {"zero": 0, "one": 1, "three": 3}
    texts = dumped(tmp_path, model(nodes, [("n", INT64, [])], [("y", INT64)], constants))
    assert "=dim(0, c0, " in texts["0-import.ir"]


def test_quantized_weights(tmp_path):
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(-3, 4, (24, 40)).astype(np.int8),
        "scale": np.float32(0.5),
        "zero": np.uint8(3),
        "wide": rng.standard_normal((40, 24)).astype(ml_dtypes.bfloat16),
    }
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("MatMulInteger", ["q", "w", "zero"], ["sums"]),
        node("Cast", ["sums"], ["half"], to=TensorProto.BFLOAT16),
        node("MatMul", ["half", "wide"], ["y"]),
    ]
    outputs = [("y", TensorProto.BFLOAT16)]
    data = model(nodes, [("x", FLOAT, ["n", 24])], outputs, constants, opset=21)
    text = dumped(tmp_path, data, {"x": ("n:1..9", 24)})["0-import.ir"]
    assert ': i8[24, 40] = constant("' in text
    assert ': bf16[40, 24] = constant("' in text


def test_a_share_of_a_size(tmp_path):
    """Half of an odd size is not a size; the graph divides."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["f"], to=FLOAT),
        node("Mul", ["f", "half"], ["g"]),
        node("Concat", ["g", "half", "f"], ["h"], axis=0),
        node("ReduceSum", ["x"], ["total"], keepdims=0),
        node("Mul", ["total", "h"], ["y"]),
    ]
    data = model(
        nodes, [("x", FLOAT, ["n"])], [("y", FLOAT)], {"half": np.array([0.5], np.float32)}
    )
    texts = dumped(tmp_path, data, {"x": ("n:1..9",)})
    assert "constant([s0, 0.5, s0])" in texts["0-import.ir"]
    artifact = farrier.compile(data, shapes={"x": ("n:1..9",)}, threads=1, verify=False)
    x = np.arange(1, 6, dtype=np.float32)
    np.testing.assert_array_equal(artifact.run({"x": x})["y"], 15 * np.float32([2.5, 0.5, 5]))


def test_strings(tmp_path):
    words = np.array([f"word {number} é" for number in range(20)])
    nodes = [node("Gather", ["words", "at"], ["found"])]
    proto = onnx.load_from_string(model(nodes, [("at", INT64, ["n"])], [("found", STRING)]))
    proto.graph.initializer.append(
        helper.make_tensor("words", STRING, [20], [word.encode() for word in words])
    )
    dumped(tmp_path, proto.SerializeToString(), {"at": ("n:1..9",)})


# Stored content ----------------------------------------------------------------------------------


def graph_of(*constants):
    return Graph("g", (), constants, (), tuple(constant.value for constant in constants))


def constant(name, array):
    return Constant(Value(name, TensorType(DType.from_numpy(array.dtype), array.shape)), array)


@pytest.mark.parametrize("dtype", DType)
def test_constants_of_every_type(dtype, tmp_path):
    """The types that numpy does not know as well."""
    data = np.random.default_rng(0).integers(0, 2, 60).astype(np.float32).astype(dtype.numpy)
    graph = graph_of(constant("w", data.reshape(3, 20)), constant("few", data[:5]))
    text = print_ir(ConstantFiles(tmp_path).store(graph))
    again = parse_ir(text, StoredConstants(tmp_path))
    assert again == graph
    assert print_ir(again) == text
    for restored, original in zip(again.constants, graph.constants, strict=True):
        assert restored.data.dtype == original.data.dtype
        assert restored.data.tobytes() == original.data.tobytes()


def test_a_byte_order_that_is_spelt_out_is_the_same_type():
    """As elements that are views of a file have it."""
    plain = np.arange(60, dtype=np.float32)
    assert constant("w", plain.view(plain.dtype.newbyteorder("<"))) == constant("w", plain)


def test_what_is_derived_is_made_once_and_mapped(tmp_path):
    weights = constant("w", np.arange(60, dtype=np.float32).reshape(3, 20))
    kind = TensorType(DType.F32, (20, 3))
    calls = []

    def turn(array):
        calls.append(array.shape)
        return array.T.copy()

    turned = Constant(Value("t", kind), Derived(kind, (weights,), turn, "turned"))
    files = ConstantFiles(tmp_path)
    first, again = files.store(graph_of(turned)), files.store(graph_of(weights, turned))
    assert calls == [(3, 20)]
    assert "data" not in turned.content.__dict__  # The result is not kept.
    for stored in (first.constants[0], again.constants[1]):
        assert isinstance(stored.content, np.memmap)
        np.testing.assert_array_equal(stored.data, weights.data.T)
        assert stored.digest == constant("t", weights.data.T.copy()).digest
    assert len(list(tmp_path.iterdir())) == 2
    text = print_ir(again)
    assert print_ir(parse_ir(text, StoredConstants(tmp_path))) == text


def test_what_is_derived_and_small_is_written_out(tmp_path):
    kind = TensorType(DType.F32, (2,))
    ones = Derived(kind, (), lambda: np.ones(2, np.float32), "ones")
    text = print_ir(ConstantFiles(tmp_path).store(graph_of(Constant(Value("o", kind), ones))))
    assert "o: f32[2] = constant([1.0, 1.0])" in text
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_short_or_pickled_is_no_constant(tmp_path):
    weights = constant("w", np.arange(60, dtype=np.float32))
    ConstantFiles(tmp_path).store(graph_of(weights))
    stored = StoredConstants(tmp_path)
    assert list(stored) == [weights.digest]
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-4])
    with pytest.raises(UsageError, match="is damaged"):
        stored[weights.digest]
    with path.open("wb") as file:
        np.save(file, np.array([{}], object), allow_pickle=True)
    with pytest.raises(UsageError, match="is damaged"):
        stored[weights.digest]
    assert "../secret" not in stored
    with pytest.raises(KeyError):
        stored["0" * 64]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "constants").write_text("a file")
    weights = constant("w", np.arange(60, dtype=np.float32))
    with pytest.raises(StorageError, match="is no directory"):
        ConstantFiles(tmp_path / "constants").store(graph_of(weights))


def test_floats_beside_dims_read_back():
    text = """@graph(n=dim(1, 8, 4))
def g():
    a: f32[3] = constant([n, 0.5, -inf])
    b: i64[()] = constant(-n + 1)
    c: f32[()] = constant(n)
    return a, b, c
"""
    assert print_ir(parse_ir(text)) == text


def test_text_that_nests_too_deeply_is_an_error():
    with pytest.raises(UsageError, match="nests too deeply"):
        parse_ir("@function\ndef f(x: f32[1]):\n    x[0] = " + "1.0 + " * 50_000 + "1.0\n")
