"""LSTM, GRU and RNN, compiled whole, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph
from tests.ops.conftest import one_node_model

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OUTPUTS = {"LSTM": 3, "GRU": 2, "RNN": 2}


def operands(rng, op, steps, batch, inputs, hidden, directions=1, **optional):
    """Random operands by position; `optional` names the optional ones to include."""
    gates = GATES[op]

    def normal(*shape):
        return (0.5 * rng.standard_normal(shape)).astype(np.float32)

    arrays = [normal(steps, batch, inputs), normal(directions, gates * hidden, inputs)]
    arrays += [normal(directions, gates * hidden, hidden)]
    arrays += [normal(directions, 2 * gates * hidden) if optional.get("bias", True) else None]
    lengths = rng.integers(1, steps + 1, batch).astype(np.int32)  # 0: ONNX Runtime forgets h
    lengths[0] = steps
    arrays += [lengths if optional.get("lengths") else None]
    for name in ("h", "c"):
        arrays += [normal(directions, batch, hidden) if optional.get(name) else None]
    arrays += [normal(directions, 3 * hidden) if optional.get("peepholes") else None]
    arrays = arrays[: 8 if op == "LSTM" else 6]
    while arrays[-1] is None:
        arrays.pop()
    return arrays


def check(op, arrays, expected=None, **attrs):
    """Hold compiled code, and the reference, against ONNX Runtime."""
    weights = {i: arrays[i] for i in (1, 2, 3, 7) if i < len(arrays) and arrays[i] is not None}
    attrs = {"hidden_size": arrays[2].shape[-1], **attrs}
    model = one_node_model(op, arrays, weights, OUTPUTS[op], 14, attrs)
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in weights}
    if expected is None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        expected = onnxruntime.InferenceSession(model, options).run(None, feeds)
    graph = import_model(model).graph
    named = {v.name: a for v, a in zip(graph.inputs, feeds.values(), strict=True)}
    references = run_graph(graph, named).values()
    artifact = farrier.compile(model, threads=2, verify=False)
    actual = artifact.run(feeds).values()
    for theirs, reference, ours in zip(expected, references, actual, strict=True):
        np.testing.assert_allclose(reference, theirs, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    ("steps", "batch", "inputs", "hidden"),
    [(5, 1, 7, 32), (3, 2, 4, 5), (1, 1, 1, 1), (4, 3, 8, 40), (3, 9, 5, 17), (2, 1, 3, 67)],
)
def test_shapes(rng, op, steps, batch, inputs, hidden):
    check(op, operands(rng, op, steps, batch, inputs, hidden))


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_directions_lengths_and_states(rng, op, direction):
    directions = 2 if direction == "bidirectional" else 1
    arrays = operands(rng, op, 6, 3, 4, 21, directions, lengths=True, h=True, c=True)
    check(op, arrays, direction=direction)


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_a_gru_resets_before_or_after_its_product(rng, before, bias):
    arrays = operands(rng, "GRU", 4, 2, 3, 19, h=True, bias=bias)
    check("GRU", arrays, linear_before_reset=before)
    both = operands(rng, "GRU", 4, 1, 3, 33, 2, lengths=True, bias=bias)
    check("GRU", both, linear_before_reset=before, direction="bidirectional")


def test_an_lstm_peeps_clips_and_couples_its_gates(rng):
    arrays = operands(rng, "LSTM", 4, 2, 3, 18, h=True, c=True, peepholes=True)
    check("LSTM", arrays)
    check("LSTM", arrays, clip=0.3)
    check("LSTM", arrays, input_forget=1)


@pytest.mark.parametrize(
    "names",
    [
        ["Relu", "Softsign", "Softplus"],
        ["HardSigmoid", "LeakyRelu", "Elu"],
    ],
)
def test_activations_with_their_defaults(rng, names):
    arrays = operands(rng, "LSTM", 3, 2, 3, 9)
    check("LSTM", arrays, activations=names)
    arrays = operands(rng, "LSTM", 3, 2, 3, 9, 2)
    check(
        "LSTM", arrays, activations=[*names, "Tanh", "Relu", "Sigmoid"], direction="bidirectional"
    )


def test_parameters_go_to_the_functions_that_take_them(rng):
    arrays = operands(rng, "LSTM", 3, 1, 3, 9)
    check(
        "LSTM",
        arrays,
        activations=["Sigmoid", "ScaledTanh", "HardSigmoid"],
        activation_alpha=[0.7, 0.3],
        activation_beta=[1.2, 0.4],
    )
    check(
        "LSTM",
        arrays,
        activations=["Affine", "ThresholdedRelu", "ScaledTanh"],
        activation_alpha=[0.7, 0.3, 0.9],
        activation_beta=[0.1, 1.2],
    )


@pytest.mark.parametrize("op", GATES)
def test_sequences_may_come_first(rng, op):
    """ONNX Runtime knows no layout: its answer is turned."""
    arrays = operands(rng, op, 4, 3, 5, 20, 2, lengths=True, h=True, c=True)
    attrs = {"direction": "bidirectional", "hidden_size": 20}
    weights = {i: arrays[i] for i in (1, 2, 3)}
    model = one_node_model(op, arrays, weights, OUTPUTS[op], 14, attrs)
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in weights}
    every, *last = onnxruntime.InferenceSession(model).run(None, feeds)
    turned = [a.swapaxes(0, 1) if i in (0, 5, 6) else a for i, a in enumerate(arrays)]
    expected = [every.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in last)]
    check(op, turned, expected, layout=1, direction="bidirectional")
