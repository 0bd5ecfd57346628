"""Hold an operator's rules against ONNX Runtime: one node, three answers, which must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ir.evaluate import evaluate
from farrier.ir.graph import Graph
from farrier.ir.loop import Function
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.verify_kernel import verify_function
from farrier.lower.region import lower_region
from farrier.ops import run_graph
from farrier.targets import host
from farrier.targets.cpu.rules import for_program
from tests.lowering import final_loops
from tests.targets.cpu.codegen.differential import run_compiled

Array = np.ndarray[Any, Any]


def one_node_model(
    op: str,
    inputs: Sequence[Array | None],
    static: Mapping[int, Array],
    outputs: int,
    opset: int,
    attrs: Mapping[str, Any],
) -> bytes:
    """A model of one node. `static` inputs are initializers, None stands for an omitted input."""
    count = max([len(inputs), *(position + 1 for position in static)])
    names, infos, initializers = [], [], []
    for position in range(count):
        array = inputs[position] if position < len(inputs) else None
        name = f"x{position}"
        if position in static:
            initializers.append(numpy_helper.from_array(static[position], name))
        elif array is not None:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            infos.append(helper.make_tensor_value_info(name, kind, array.shape))
        else:
            name = ""
        names.append(name)
    output_names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, output_names, **attrs)
    results = [onnx.ValueInfoProto(name=name) for name in output_names]
    graph = helper.make_graph([node], "one", infos, results, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


def run_kernel(graph: Graph, inputs: Mapping[str, Array]) -> list[Array]:
    """The graph as one kernel: a tensor program evaluated, a loop nest compiled and interpreted."""
    kernel = lower_region(graph, "kernel", ())
    if isinstance(kernel, Function):
        return run_nest(kernel, graph, inputs)
    pairs = zip(kernel.inputs, graph.inputs, strict=True)
    return list(evaluate(kernel, {b.name: inputs[v.name] for b, v in pairs}).values())


def run_nest(function: Function, graph: Graph, inputs: Mapping[str, Array]) -> list[Array]:
    """Run a loop nest in the interpreter and, on 2 threads, compiled; return the outputs."""
    verify_function(function)
    assert parse_ir(print_ir(function)) == function
    space = for_program(function, host(), 2)
    feeds = {
        param.name: inputs[value.name].reshape(param.shape)
        for param, value in zip(function.params, graph.inputs, strict=False)
    }
    expected = run_loops(function, feeds)
    for row in space.candidates():
        built = final_loops(space, space.decisions(row))
        verify_function(built)
        for name, array in run_compiled(built, feeds, threads=2).items():
            assert_close(array, expected[name], 2e-5, f"compiled {name}")
    return [
        array.reshape(value.type.static_shape)
        for array, value in zip(expected.values(), graph.outputs, strict=True)
    ]


def assert_close(actual: Array, expected: Array, tolerance: float, what: str) -> None:
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    finite = expected[np.isfinite(expected)]
    scale = float(np.abs(finite).max(initial=1e-6))
    np.testing.assert_allclose(
        actual, expected, rtol=tolerance, atol=tolerance * scale, err_msg=what
    )


@pytest.fixture
def check_operator() -> Callable[..., list[Array]]:
    """Hold reference against ONNX Runtime, and compute against reference; give the outputs.

    `expected` replaces ONNX Runtime where it lacks the case.
    """

    def check(
        op: str,
        inputs: Sequence[Array | None],
        *,
        static: Mapping[int, Array] | None = None,
        outputs: int = 1,
        opset: int = 17,
        tolerance: float = 2e-6,
        expected: Sequence[Array] | None = None,
        **attrs: Any,
    ) -> list[Array]:
        data = one_node_model(op, inputs, static or {}, outputs, opset, attrs)
        imported = import_model(data)
        named = {
            f"x{i}": a for i, a in enumerate(inputs) if a is not None and i not in (static or {})
        }
        if expected is None:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            session = onnxruntime.InferenceSession(data, options)
            expected = session.run(None, named)
        pairs = zip(imported.graph.inputs, imported.input_names, strict=True)
        feeds = {value.name: named[name] for value, name in pairs}
        references = list(run_graph(imported.graph, feeds).values())
        # What has no elements is a constant, and no kernel.
        computed = run_kernel(imported.graph, feeds) if imported.graph.nodes else references
        for ours, theirs, kernel in zip(references, expected, computed, strict=True):
            assert_close(ours, np.asarray(theirs), tolerance, f"{op} {attrs}: reference")
            assert_close(kernel, ours, tolerance, f"{op} {attrs}: compute")
        return references

    return check


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261121)


@pytest.fixture
def check_model() -> Callable[..., None]:
    """Hold a compiled model of one node, which becomes several kernels, against ONNX Runtime."""

    def check(op: str, inputs: Sequence[Array], *, outputs: int = 1, **attrs: Any) -> None:
        data = one_node_model(op, inputs, {}, outputs, 17, attrs)
        feeds = {f"x{i}": array for i, array in enumerate(inputs)}
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        expected = onnxruntime.InferenceSession(data, options).run(None, feeds)
        graph = import_model(data).graph
        named = {v.name: a for v, a in zip(graph.inputs, feeds.values(), strict=True)}
        references = run_graph(graph, named).values()
        actual = farrier.compile(data, threads=2, verify=False).run(feeds).values()
        for theirs, reference, ours in zip(expected, references, actual, strict=True):
            assert_close(reference, np.asarray(theirs), 2e-6, f"{op} {attrs}: reference")
            assert_close(ours, np.asarray(theirs), 2e-6, f"{op} {attrs}: compiled")

    return check
