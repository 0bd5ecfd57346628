"""The abacus in this process: two spaces, a queue, and drivers that are interpreted."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.options import CompileOptions
from farrier.pipeline import Dump, StoppedError, compile_model
from farrier.targets import names, registry
from farrier_device import program
from farrier_device.program import Wait
from tests.control_flow.test_models import branching, looping
from tests.rpc_device.device_contract import DeviceContract
from tests.rpc_device.doubling import COUNT

sys.path.insert(0, str(Path(__file__).with_name("toy")))
import abacus
from abacus import devices

TOY = Path(__file__).with_name("toy")
node = helper.make_node
CODE = json.dumps(
    {
        "kernels": {
            "right": f"""@function
def right(x: f32[{COUNT}], y: f32[{COUNT}]):
    for i in serial({COUNT}):
        y[i] = x[i] * 2.0
""",
            "code_three": 3,
        },
        "programs": {},
    }
).encode()


class TestFrame(DeviceContract):
    kind = devices.KIND
    new = staticmethod(devices.Frame)

    @pytest.fixture
    def code(self):
        return CODE


class TestTable(DeviceContract):
    kind = devices.KIND
    new = staticmethod(devices.Table)

    @pytest.fixture
    def code(self):
        return CODE


def test_it_knows_no_cpu():
    for path in TOY.rglob("*.py"):
        for imports in ast.walk(ast.parse(path.read_text())):
            if isinstance(imports, ast.Import | ast.ImportFrom):
                assert "farrier.targets.cpu" not in ast.unparse(imports), path


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The backend is one of another package while the tests of this module run."""
    caches = [
        value
        for module in (registry, names)
        for value in vars(module).values()
        if hasattr(value, "cache_clear") and value.__module__ == module.__name__
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_others", lambda: (abacus.BACKEND,))
        for cache in caches:
            cache.cache_clear()
        yield
    for cache in caches:
        cache.cache_clear()


def compiled(model):
    return farrier.compile(model, target="abacus", verify=False)


def assert_as_onnxruntime(model, *cases):
    artifact = compiled(model)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for inputs in cases:
        for wanted, output in zip(
            session.run(None, inputs), artifact.run(inputs).values(), strict=True
        ):
            np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-5)
    return artifact


def model_of(nodes, outputs, shape, constants):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


WEIGHTS = {
    "w": np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3),
    "one": np.array(1, np.int64),
    "table": np.arange(12, dtype=np.float32).reshape(4, 3) / 8,
}


@st.composite
def random_models(draw):
    """A model of f32 and i64: kernels of floats alone run on the frame, the rest on the table."""
    nodes, floats, integers = [], ["x"], []

    def add(op, *inputs, to=floats, **attributes):
        name = f"v{len(nodes)}"
        nodes.append(node(op, inputs, [name], **attributes))
        if to is not None:
            to.append(name)
        return name

    for _ in range(draw(st.integers(1, 7))):
        a, b = draw(st.sampled_from(floats)), draw(st.sampled_from(floats))
        match draw(st.sampled_from(["Tanh", "Softmax", "Add", "MatMul", "ArgMax", "Gather"])):
            case "Tanh" | "Softmax" as op:
                add(op, a)
            case "Add":
                add("Add", a, b)
            case "MatMul":
                add("MatMul", a, "w")
            case "ArgMax":
                add("ArgMax", a, axis=1, keepdims=0, to=integers)
            case "Gather" if integers:
                indices = add("Add", draw(st.sampled_from(integers)), "one", to=None)
                add("Gather", "table", indices)
            case "Gather":
                add("ReduceSum", a, keepdims=1)
    outputs = {floats[-1]: TensorProto.FLOAT} if floats[-1] != "x" else {}
    outputs |= dict.fromkeys(integers[-1:], TensorProto.INT64)
    return model_of(nodes, outputs, [2, 3], WEIGHTS)


X = np.random.default_rng(5).standard_normal((2, 3)).astype(np.float32)


@settings(max_examples=15, deadline=None)
@given(random_models())
def test_random_models(model):
    assert_as_onnxruntime(model, {"x": X}, {"x": -X})


def test_open_dims_and_counted_sizes():
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Relu", ["m"], ["r"]),
        node("NonZero", ["r"], ["places"]),
    ]
    outputs = {"r": TensorProto.FLOAT, "places": TensorProto.INT64}
    model = model_of(nodes, outputs, ["n", 3], {"w": WEIGHTS["w"]})
    assert_as_onnxruntime(model, *({"x": np.tile(X, (n, 1))} for n in (1, 3, 2)))


def test_control_flow():
    cases = [{"c": np.array(c), "x": X * scale} for c in (True, False) for scale in (1, -9)]
    assert_as_onnxruntime(branching("c"), *cases)
    wide = np.random.default_rng(6).standard_normal((2, 5)).astype(np.float32)
    cases = [{"n": np.array(n), "x": wide} for n in (0, 1, 4)]
    assert_as_onnxruntime(looping("n", "", "cond"), *cases)


def test_a_dump_shows_the_driver_before_and_after_it_is_placed(tmp_path):
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    model = model_of(nodes, {"y": TensorProto.FLOAT}, [2, 3], WEIGHTS)
    options = CompileOptions("abacus", verify=False)
    with pytest.raises(StoppedError):
        compile_model(model, options, dump=Dump(tmp_path, "link"))
    before, after = (
        (tmp_path / f"{name}-driver.txt").read_text() for name in ("3-partition", "10-link")
    )
    assert re.search(r"    call \w+\(\w+, \w+\) -> \w+\n", before)
    placed = r"""    copy\((\w+) -> \1@frame\)
    launch\[frame\] \w+\(\1@frame, \w+@frame\) -> (\w+)@frame
    copy\(\2@frame -> \2\)
    wait\(frame\)
    return \2
"""
    assert re.search(placed, after)


def waits(steps):
    return [step for step in steps if isinstance(step, Wait)]


def test_a_wait_that_is_missing_is_a_wrong_result():
    """The program of the artifact, run without its waits."""
    model = model_of([node("MatMul", ["x", "w"], ["y"])], {"y": TensorProto.FLOAT}, [2, 3], WEIGHTS)
    artifact = compiled(model)
    whole = artifact.code.program
    assert waits(whole.steps)
    assert any(isinstance(step, program.Launch) for step in whole.steps)
    hasty = dataclasses.replace(
        whole, steps=tuple(step for step in whole.steps if not isinstance(step, Wait))
    )
    for each, is_right in ((whole, True), (hasty, False)):
        y = run(dataclasses.replace(artifact.code, program=each), artifact, X)
        assert np.allclose(y, X @ WEIGHTS["w"]) is is_right


def run(code, artifact, x):
    """Return the output of code of the artifact, called by addresses."""
    y, params = np.zeros_like(x), np.frombuffer(bytes(artifact.params), np.uint8)
    loaded = abacus.BACKEND.load(code, 1)
    workspace = np.zeros(max(1, loaded.workspace_bytes(0)), np.uint8)
    arrays = (x, y, params, workspace)
    assert loaded.entry([array.ctypes.data for array in arrays], loaded.context) == 0
    output = y.copy()
    loaded.close()
    return output
