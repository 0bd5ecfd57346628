"""A small model's kernels, for the tests of those who compile them."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper as make
from onnx import numpy_helper

from farrier.compile_pool import lowered
from farrier.compile_pool.choose import default_schedules
from farrier.frontends.onnx.importer import import_model
from farrier.partition import extract_tasks
from farrier.passes import Settings, optimize
from farrier.progress import ignore
from farrier.targets import parse_target

LAYERS = 3
THREADS = 2


@pytest.fixture(scope="module")
def target():
    return parse_target("host")


@pytest.fixture(scope="module")
def choices(target):
    """Layers of open rows and odd widths, each a kernel of its own, and a sort."""
    rng = np.random.default_rng(0)
    widths = [5 + 3 * layer for layer in range(LAYERS + 1)]
    weights = [
        rng.standard_normal(shape).astype(np.float32) for shape in itertools.pairwise(widths)
    ]
    nodes = [
        node
        for n in range(LAYERS)
        for node in (
            make.make_node("MatMul", [f"x{n}", f"w{n}"], [f"p{n}"]),
            make.make_node("Softmax", [f"p{n}"], [f"x{n + 1}"]),
        )
    ]
    nodes.append(make.make_node("TopK", [f"x{LAYERS}", "k"], ["values", "places"]))
    graph = make.make_graph(
        nodes,
        "layers",
        [make.make_tensor_value_info("x0", onnx.TensorProto.FLOAT, ["rows", widths[0]])],
        [
            make.make_tensor_value_info("values", onnx.TensorProto.FLOAT, ["rows", 3]),
            make.make_tensor_value_info("places", onnx.TensorProto.INT64, ["rows", 3]),
        ],
        [numpy_helper.from_array(array, f"w{n}") for n, array in enumerate(weights)]
        + [numpy_helper.from_array(np.array([3]), "k")],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    imported = import_model(model.SerializeToString(), {"x0": ("rows:1..64", widths[0])}, ())
    graph = optimize(imported.graph, Settings(target, THREADS))
    tasks, program = extract_tasks(graph)
    return default_schedules(tasks, program.calls, target, THREADS, ignore)


@pytest.fixture(scope="module")
def build_inputs(choices, target):
    return lowered(choices, target)
