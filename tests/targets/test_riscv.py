"""RISC-V: code that qemu runs is right, and uses no instruction that a target lacks.

`python -m bench.boards --bare --target rv64gc` does the same for whole models.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bench import models
from bench.boards import bare
from bench.boards.guest import GuestError
from bench.compare import difference
from farrier.errors import UsageError
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.options.shapes import parse_hot, parse_shapes
from farrier.packaging.draws import random_inputs
from farrier.pipeline import compile_model
from farrier.targets import known_machines, parse_target
from farrier.targets.registry import backend_for
from farrier.targets.riscv.cores import BASE

LACKS = bare.missing("riscv64")
needs_qemu = pytest.mark.skipif(bool(LACKS), reason=LACKS)
SMALL_BERT = {"layers": 1, "width": 32, "heads": 2, "vocabulary": 50}


def _gru():
    """Sums of blocks of 16 hidden units stay in registers, whatever the vectors."""
    rng = np.random.default_rng(0)
    weights = {"w": (1, 9, 3), "r": (1, 9, 3)}
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("GRU", ["x", "w", "r"], ["", "h"], hidden_size=3)],
        "gru",
        [helper.make_tensor_value_info("x", floats, (4, 2, 3))],
        [helper.make_tensor_value_info("h", floats, (1, 2, 3))],
        [
            onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


MODELS = {
    "gru": _gru,
    "mobilenet": lambda: models.build("mobilenet_v2", size=64, stages=4),
    "resnet": lambda: models.build("resnet18", size=32),
    "bert": lambda: models.build("bert_base", tokens=12, **SMALL_BERT),
}


def compiled(model, shapes=(), hot=(), target="rv64gc"):
    options = CompileOptions(
        target, parse_shapes(shapes), threads=4, verify=False, hot=parse_hot(hot)
    )
    return compile_model(Model.of_bytes(model, "model"), options, name="model")


def reference(model, artifact, inputs):
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in artifact.manifest.outputs]
    return dict(zip(names, session.run(names, inputs), strict=True))


VECTORS = {"rv64gcv": 4, "spacemit-k1": 8}  # The f32 lanes of a vector.
RUNS = [*((name, "rv64gc") for name in MODELS), ("resnet", "rv64gcv"), ("bert", "spacemit-k1")]


@needs_qemu
@pytest.mark.parametrize(("name", "target"), RUNS)
def test_a_model_is_right_with_one_thread_and_with_four(name, target):
    model = MODELS[name]()
    artifact = compiled(model, target=target)
    inputs = random_inputs(artifact.manifest.inputs)
    expected = reference(model, artifact, inputs)
    for threads in (1, 4):
        assert difference(bare.run(artifact, inputs, threads), expected) < 1e-5


@needs_qemu
def test_open_dims_take_any_size_in_their_range():
    model = models.build("bert_base", batch="batch", tokens="tokens", **SMALL_BERT)
    shapes = [
        f"{name}=batch:1..3,tokens:4..16"
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    artifact = compiled(model, shapes, ["batch=1,tokens=8"])
    rng = np.random.default_rng(0)
    for shape in ((1, 8), (3, 13)):
        inputs = {spec.name: rng.integers(0, 2, shape) for spec in artifact.manifest.inputs}
        outcome = bare.run(artifact, inputs, 4)
        assert difference(outcome, reference(model, artifact, inputs)) < 1e-5


@needs_qemu
@pytest.mark.parametrize("target", VECTORS)
def test_vectors_are_used_where_a_machine_has_them(target, monkeypatch):
    assert parse_target(target).lanes == VECTORS[target]
    artifact = compiled(_gru(), target=target)
    tools = bare.TOOLS["riscv64"]
    (scalar, _), *_ = tools.cpus
    has_all = frozenset().union(*(features for _, features in tools.cpus))
    monkeypatch.setitem(bare.TOOLS, "riscv64", replace(tools, cpus=((scalar, has_all),)))
    with pytest.raises(GuestError, match="ended with -4"):  # An illegal instruction.
        bare.run(artifact, random_inputs(artifact.manifest.inputs))


@needs_qemu
@pytest.mark.parametrize("target", ["rv64gc", *VECTORS])
def test_products_of_bytes_are_exact(target):
    rng = np.random.default_rng(5)
    shapes = {"a": ((5, 80), (80, 24)), "b": ((7, 7), (7, 5))}
    inputs, weights = (
        {f"{name}_{side}": rng.integers(-128, 128, pair[at]).astype(np.int8)
         for name, pair in shapes.items()}
        for at, side in enumerate("xw")
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", [f"{n}_x", f"{n}_w"], [n]) for n in shapes],
        "products",
        [
            helper.make_tensor_value_info(name, TensorProto.INT8, x.shape)
            for name, x in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.INT32, None) for name in shapes],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    artifact = compiled(model, target=target)
    outcome, expected = bare.run(artifact, inputs), reference(model, artifact, inputs)
    for name in shapes:
        np.testing.assert_array_equal(outcome[name], expected[name])


@needs_qemu
def test_a_quantized_model_is_within_a_step_of_its_quantization():
    """By scalars: qemu 7.2 ends at a vector conversion from floats to integers."""
    floats = models.build("mobilenet_v2", size=32, stages=2, classes=10)
    rng = np.random.default_rng(0)
    samples = [{"x": rng.standard_normal((1, 3, 32, 32), np.float32)} for _ in range(2)]
    model = models.statically(floats, samples)
    artifact = compiled(model)
    (outcome,), (expected,) = (
        run.values()
        for run in (bare.run(artifact, samples[0]), reference(model, artifact, samples[0]))
    )
    step = np.diff(np.unique(expected)).min()
    assert np.abs(outcome - expected).max() <= 1.01 * step


FUNCTIONS = (
    *("Exp", "Log", "Erf", "Tanh", "Sigmoid", "Sqrt", "Floor", "Ceil", "Round", "Sin", "Cos"),
    *("Reciprocal", "Softplus", "HardSwish", "Abs", "Neg", "Sign"),
)


@needs_qemu
def test_functions_and_conversions_are_those_of_every_cpu():
    """None may call the C library, nor use the registers of another float ABI."""
    x = np.linspace(0.01, 9, 40, dtype=np.float32).reshape(4, 10)
    nodes = [helper.make_node(op, ["x"], [op]) for op in FUNCTIONS]
    kinds = (TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT8, TensorProto.UINT64)
    outputs = dict.fromkeys(FUNCTIONS, TensorProto.FLOAT)
    for kind in kinds:
        name = f"as_{kind}"
        nodes.append(helper.make_node("Cast", ["x"], [name], to=kind))
        outputs[name] = kind
    nodes.append(helper.make_node("Exp", [f"as_{TensorProto.DOUBLE}"], ["exp_f64"]))
    nodes.append(helper.make_node("TopK", ["x", "three"], ["most", "where"]))
    outputs |= {"exp_f64": TensorProto.DOUBLE, "most": TensorProto.FLOAT}
    outputs["where"] = TensorProto.INT64
    graph = helper.make_graph(
        nodes,
        "functions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [
            helper.make_tensor_value_info(name, kind, ["rows", "columns"])
            for name, kind in outputs.items()
        ],
        [onnx.numpy_helper.from_array(np.array([3], np.int64), "three")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    model = proto.SerializeToString()
    artifact = compiled(model)
    outcome, expected = bare.run(artifact, {"x": x}, 4), reference(model, artifact, {"x": x})
    for name, kind in outputs.items():
        assert outcome[name].dtype == helper.tensor_dtype_to_np_dtype(kind)
        np.testing.assert_allclose(
            outcome[name], expected[name], rtol=2e-6, atol=1e-6, err_msg=name
        )


def test_its_objects_have_the_abi_of_linux_distributions():
    artifact = compiled(models.build("mobilenet_v2", size=32, stages=1))
    machine, flags = struct.unpack_from("<18xH28xI", artifact.code.objects[0].content)
    compressed, double_floats = 0x1, 0x4  # EF_RISCV_RVC, EF_RISCV_FLOAT_ABI_DOUBLE
    assert (machine, flags) == (243, compressed | double_floats)


def test_a_machine_that_lacks_floats_is_refused():
    backend = backend_for("riscv64")
    machine = known_machines()["rv64gc"].description
    features = tuple(sorted(BASE - {"d", "f"}))
    with pytest.raises(UsageError, match="lacks d, f, which all code for riscv64 uses"):
        backend.target(replace(machine, features=features))


def test_a_core_that_nobody_knows_costs_as_another():
    backend = backend_for("riscv64")
    machine = known_machines()["rv64gc"].description
    target = backend.target(replace(machine, cpu="thead,c910"))
    assert target.core == "thead,c910"
    assert target.figures == parse_target("visionfive2").figures


@pytest.mark.parametrize(
    ("target", "shifted_additions"), [("rv64gc", False), ("visionfive2", True)]
)
def test_extensions_are_used_where_a_machine_has_them(target, shifted_additions):
    target = parse_target(target)
    assert target.llvm.features.count("+zba") == shifted_additions
    assert ("zba" in target.required_features) == shifted_additions
