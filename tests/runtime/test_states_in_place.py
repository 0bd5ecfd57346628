"""Caches that a call writes a part of: nothing else in them is written, or read to be copied."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import farrier
from farrier.errors import UsageError

RNG = np.random.default_rng(11)
F32, I64 = TensorProto.FLOAT, TensorProto.INT64
ROOM = 1024
CACHES = ("tensor", "ring", "rows", "elements")


@pytest.fixture(scope="module")
def artifact():
    """A TensorScatter of each mode, a ScatterND, a ScatterElements, and a Concat."""
    nodes = [
        helper.make_node("TensorScatter", ["tensor", "new", "start"], ["tensor_out"], axis=2),
        helper.make_node(
            "TensorScatter", ["ring", "new", "start"], ["ring_out"], axis=2, mode="circular"
        ),
        helper.make_node("ScatterND", ["rows", "at", "row"], ["rows_out"]),
        helper.make_node("ScatterElements", ["elements", "places", "row"], ["elements_out"]),
        helper.make_node("Concat", ["grown", "new"], ["grown_out"], axis=2),
        helper.make_node("ReduceSum", ["rows_out"], ["sum"], keepdims=0),
        helper.make_node("ReduceMax", ["tensor_out"], ["most"], keepdims=0),
    ]
    inputs = {
        "new": (F32, [1, 1, "n", 16]),
        "start": (I64, [1]),
        "at": (I64, ["k", 1]),
        "row": (F32, ["k", 16]),
        "places": (I64, ["k", 16]),
        "tensor": (F32, [1, 1, ROOM, 16]),
        "ring": (F32, [1, 1, ROOM, 16]),
        "rows": (F32, [ROOM, 16]),
        "elements": (F32, [ROOM, 16]),
        "grown": (F32, [1, 1, "past", 16]),
    }
    outputs = [f"{name}_out" for name in (*CACHES, "grown")]
    graph = helper.make_graph(
        nodes,
        "caches",
        [helper.make_tensor_value_info(name, *of) for name, of in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in (*outputs, "sum", "most")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    states = {name: f"{name}_out" for name in CACHES} | {"grown": f"grown_out:capacity={ROOM}"}
    return farrier.compile(model, threads=2, states=states, verify=False)


class Reference:
    """The caches in numpy."""

    def __init__(self):
        self.tensor, self.ring, self.rows, self.elements = (
            np.zeros((ROOM, 16), np.float32) for _ in CACHES
        )
        self.grown = np.zeros((0, 16), np.float32)

    def run(self, call):
        new, start = call["new"][0, 0], int(call["start"][0])
        slots = start + np.arange(len(new))
        inside = (slots >= 0) & (slots < ROOM)
        self.tensor[slots[inside]] = new[inside]
        self.ring[slots % ROOM] = new
        for at, row, places in zip(call["at"], call["row"], call["places"], strict=True):
            self.rows[at[0]] = row
            self.elements[places, np.arange(16)] = row
        self.grown = np.concatenate([self.grown, new])


def call_at(start, count):
    def values(*shape):
        return RNG.standard_normal(shape).astype(np.float32)

    return {
        "new": values(1, 1, count, 16),
        "start": np.array([start]),
        "at": (start + np.arange(count))[:, None] % ROOM,
        "row": values(count, 16),
        "places": (start + RNG.integers(0, 5, (count, 16))) % ROOM,
    }


def test_parts_of_caches_are_overwritten(artifact):
    assert all(state.in_place for state in artifact.manifest.state)
    session, reference = artifact.session(), Reference()
    for start, count in [(0, 3), (7, 1), (8, 0), (ROOM - 2, 4), (2, 5)]:
        call = call_at(start, count)
        reference.run(call)
        outputs = session.run(call)
        np.testing.assert_allclose(outputs["sum"], reference.rows.sum(), rtol=1e-4, atol=1e-3)
        assert outputs["most"] == reference.tensor.max()
    state = session.state()
    for name in (*CACHES, "grown"):
        expected = getattr(reference, name)
        np.testing.assert_array_equal(state[name].reshape(expected.shape), expected)


def test_a_call_touches_nothing_but_what_it_writes(artifact):
    """Pages that hold no update may be read alone."""
    session = artifact.session()
    session.run(call_at(0, ROOM - 8))
    names = [spec.name for spec in artifact.manifest.inputs]
    places = [session.addresses[names.index(name)] for name in (*CACHES, "grown")]
    nbytes = ROOM * 16 * 4 - 2 * mmap.PAGESIZE
    for place in places:
        protect(place, nbytes, mmap.PROT_READ)
    try:
        session.run(call_at(ROOM - 8, 2))
    finally:
        for place in places:
            protect(place, nbytes, mmap.PROT_READ | mmap.PROT_WRITE)
    assert places == [session.addresses[names.index(name)] for name in (*CACHES, "grown")]


def protect(address, nbytes, rights):
    """Set what may be done to the pages that lie in a part of memory."""
    start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (address + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), rights) == 0


def scattered(reduction="none", extra=()):
    """A ScatterND into a cache, and other nodes."""
    nodes = [
        helper.make_node("ScatterND", ["c", "at", "row"], ["c_out"], reduction=reduction),
        *extra,
    ]
    inputs = {"c": (F32, [8, 4]), "at": (I64, [1, 1]), "row": (F32, [1, 4])}
    names = ["c_out", *(name for node in extra for name in node.output)]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info(name, *of) for name, of in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in names],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(
    "model",
    [scattered("add"), scattered(extra=[helper.make_node("Neg", ["c"], ["old"])])],
    ids=["a sum", "read by another"],
)
def test_a_cache_that_cannot_be_written_in_place_has_two_buffers(model):
    artifact = farrier.compile(model, threads=1, states={"c": "c_out"}, verify=False)
    assert not artifact.manifest.state[0].in_place
    session, row = artifact.session(), np.ones((1, 4), np.float32)
    for at in (1, 1, 3):
        session.run({"at": np.array([[at]]), "row": row})
    total = session.state()["c"].sum(1)
    is_sum = "old" not in {spec.name for spec in artifact.manifest.outputs}
    assert total[[1, 3]].tolist() == [8 if is_sum else 4, 4]


@pytest.mark.parametrize(
    ("states", "match", "hint"),
    [
        ({"d": "c_out"}, "no input 'd'", ""),
        ({"c": "d"}, "no output 'd'", ""),
        ({"c.*": "c_out.*"}, "no input and output fit", ""),
        ({"row": "c_out"}, "row is 1 along axis 0 before every call and 8", "open"),
        ({"at": "c_out"}, "the state at is i64", "keeps its type"),
        ({"c": "c_out:capacity=9"}, "fixed size, and a capacity", "leave"),
        ({"c": "c_out:axis=0"}, "declared to grow along axis 0", "leave"),
        ({"c": "c_out", "row": "c_out"}, "row|two states", ""),
    ],
)
def test_states_that_a_model_does_not_have_are_refused(states, match, hint):
    with pytest.raises(UsageError, match=match):
        farrier.compile(scattered(), states=states, verify=False)
