"""States that a session keeps between calls: their values, where they lie, what they refuse."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import farrier
from farrier.errors import InputMismatchError, MemoryLimitError, UsageError
from tests.runtime.tiny_llama import HEADS, SIZE, tiny_llama

RNG = np.random.default_rng(7)
CAPACITY = 12
STATES = {"cache": f"cache_out:capacity={CAPACITY}", "count": "count_out:initial=5", "h": "h_out"}
F32, I64 = TensorProto.FLOAT, TensorProto.INT64


@pytest.fixture(scope="module")
def artifact():
    """A cache that grows along its third axis, and two states of fixed size."""
    nodes = [
        helper.make_node("Concat", ["cache", "new"], ["cache_out"], axis=2),
        helper.make_node("ReduceSum", ["cache_out", "two"], ["sums"], keepdims=0),
        helper.make_node("ReduceSum", ["new", "inner"], ["added"], keepdims=0),
        helper.make_node("Mul", ["h", "half"], ["halved"]),
        helper.make_node("Add", ["halved", "added"], ["h_out"]),
        helper.make_node("Add", ["count", "one"], ["count_out"]),
        helper.make_node("Neg", ["h"], ["before"]),
    ]
    shapes = {
        "cache": (F32, ["batch", 2, "past", 16]),
        "new": (F32, ["batch", 2, "sequence", 16]),
        "h": (F32, ["batch", 2]),
        "count": (I64, [1]),
    }
    constants = [
        helper.make_tensor("two", I64, [1], [2]),
        helper.make_tensor("inner", I64, [2], [2, 3]),
        helper.make_tensor("half", F32, [], [0.5]),
        helper.make_tensor("one", I64, [], [1]),
    ]
    outputs = ("sums", "cache_out", "h_out", "count_out", "before")
    graph = helper.make_graph(
        nodes,
        "stateful",
        [helper.make_tensor_value_info(name, *of) for name, of in shapes.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return farrier.compile(model, threads=2, states=STATES)  # verified, too


class Reference:
    """The model in numpy."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.cache, self.h, self.count = None, None, np.array([5])

    def run(self, new):
        batch = len(new)
        if self.h is None:
            self.h = np.zeros((batch, 2), np.float32)
        if self.cache is None:
            self.cache = np.zeros((batch, 2, 0, 16), np.float32)
        cache = np.concatenate([self.cache, new], 2)
        if cache.shape[2] > CAPACITY:
            raise MemoryLimitError("full")
        before = -self.h
        self.cache, self.h = cache, self.h / 2 + new.sum((2, 3))
        self.count = self.count + 1
        return {"sums": cache.sum(2), "before": before}


def tokens(batch, sequence):
    return RNG.standard_normal((batch, 2, sequence, 16)).astype(np.float32)


STEPS = st.lists(
    st.one_of(st.integers(0, 5), st.sampled_from(["reset", "reload"])), min_size=1, max_size=8
)


@settings(max_examples=30, deadline=None)
@given(batch=st.integers(1, 3), steps=STEPS)
def test_any_calls_leave_what_numpy_says(artifact, batch, steps):
    session, reference = artifact.session(), Reference()
    for step in steps:
        if step == "reset":
            session.reset()
            reference.reset()
        elif step == "reload":
            session.load_state(session.state())
            if reference.h is None:
                batch = session.state()["h"].shape[0]
        else:
            _compare_call(session, reference, tokens(batch, step))
    if reference.cache is not None:
        state = session.state()
        np.testing.assert_array_equal(state["cache"], reference.cache)
        np.testing.assert_allclose(state["h"], reference.h, atol=1e-4)
        np.testing.assert_array_equal(state["count"], reference.count)
    session.close()


def _compare_call(session, reference, new):
    try:
        expected = reference.run(new)
    except MemoryLimitError:
        with pytest.raises(MemoryLimitError, match="state cache of stateful is full"):
            session.run({"new": new})
        return
    outputs = session.run({"new": new})
    assert sorted(outputs) == sorted(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, atol=1e-4)


def test_a_cache_with_a_capacity_never_moves_and_is_written_in_place(artifact):
    session = artifact.session()
    session.load_state({"cache": tokens(1, 2)})
    places = set()
    for _ in range(CAPACITY - 2):
        session.run({"new": tokens(1, 1)})
        at = [spec.name for spec in artifact.manifest.inputs].index("cache")
        to = len(artifact.manifest.inputs) + [s.name for s in artifact.manifest.outputs].index(
            "cache_out"
        )
        places |= {session.addresses[at], session.addresses[to]}
    (cache, *_) = session.states
    assert len(places) == 1
    assert cache.moved_bytes == 0


def test_states_of_fixed_size_change_places(artifact):
    session = artifact.session()
    at = [spec.name for spec in artifact.manifest.inputs].index("h")
    seen = []
    for _ in range(4):
        session.run({"new": tokens(1, 1)})
        seen.append(session.addresses[at])
    assert seen[0] == seen[2] != seen[1] == seen[3]


def test_a_full_cache_names_the_state_and_the_way_to_more(artifact):
    session = artifact.session()
    session.run({"new": tokens(1, CAPACITY)})
    before = session.state()
    with pytest.raises(MemoryLimitError, match=r"holds 12 along axis 2, .*capacity is 12") as e:
        session.run({"new": tokens(1, 1)})
    assert "--state cache=cache_out:capacity=13" in e.value.hint
    for name, array in session.state().items():
        np.testing.assert_array_equal(array, before[name])
    session.reset()
    session.run({"new": tokens(1, 1)})


def test_each_session_has_states_of_its_own_and_shares_the_parameters(artifact):
    first, other = artifact.session(), artifact.session()
    first.run({"new": tokens(1, 2)})
    other.run({"new": tokens(3, 1)})
    assert first.state()["cache"].shape == (1, 2, 2, 16)
    assert other.state()["cache"].shape == (3, 2, 1, 16)
    assert first.params.address == other.params.address


def test_another_batch_than_the_states_have_is_refused(artifact):
    session = artifact.session()
    session.run({"new": tokens(2, 1)})
    with pytest.raises(InputMismatchError, match="batch is 2") as error:
        session.run({"new": tokens(1, 1)})
    assert "reset" in error.value.hint


def test_a_state_is_an_output_where_it_is_asked_for(artifact):
    session = artifact.session()
    new = tokens(2, 3)
    into = np.empty((2, 2, 3, 16), np.float32)
    outputs = session.run({"new": new}, {"cache_out": into, "count_out": None})
    assert outputs["cache_out"] is into
    np.testing.assert_array_equal(into, new)
    np.testing.assert_array_equal(outputs["count_out"], [6])


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"nothing": np.zeros(1)}, "no state nothing"),
        ({"count": np.zeros(1, np.int32)}, "state count of stateful is int64"),
        ({"cache": np.zeros((1, 3, 1, 16), np.float32)}, "state cache"),
        ({"h": np.zeros(2, np.float32)}, "state h"),
    ],
)
def test_arrays_that_are_no_state_are_refused(artifact, arrays, match):
    with pytest.raises(InputMismatchError, match=match):
        artifact.session().load_state(arrays)


def test_a_state_beyond_its_capacity_is_not_loaded(artifact):
    with pytest.raises(MemoryLimitError, match="capacity of 12"):
        artifact.session().load_state({"cache": np.zeros((1, 2, 13, 16), np.float32)})


def test_a_state_is_not_given_with_a_call_and_an_artifact_has_none(artifact):
    with pytest.raises(InputMismatchError, match="takes the inputs new") as error:
        artifact.session().run({"new": tokens(1, 1), "h": np.zeros((1, 2), np.float32)})
    assert "load_state" in error.value.hint
    with pytest.raises(UsageError, match="keeps cache"):
        artifact.run({"new": tokens(1, 1)})


def test_a_saved_artifact_has_the_same_states(artifact, tmp_path):
    loaded = farrier.load(artifact.save(tmp_path / "s.farrier"))
    assert loaded.manifest.state == artifact.manifest.state
    session = loaded.session()
    session.run({"new": tokens(1, 1)})
    assert session.state()["count"] == [6]


@pytest.fixture(scope="module")
def llama():
    model = tiny_llama()
    return model, farrier.compile(
        model, threads=1, verify=False, states={"past_key_values.*": "present.*"}
    )


def test_512_tokens_with_state_are_those_without(llama):
    model, artifact = llama
    session = artifact.session()
    stateless = onnxruntime.InferenceSession(model.SerializeToString())
    names = [output.name for output in stateless.get_outputs()]
    empty = np.zeros((1, HEADS, 0, SIZE), np.float32)
    past = {argument.name: empty for argument in stateless.get_inputs()[1:]}
    ids = expected_ids = np.array([[3, 1, 4, 1, 5]])
    seen = set()
    for _ in range(512):
        outputs = dict(zip(names, stateless.run(None, {"ids": expected_ids, **past}), strict=True))
        expected_ids = outputs["token"][:, -1:]
        past = {name: outputs[name.replace("past_key_values", "present")] for name in past}
        ids = session.run({"ids": ids})["token"][:, -1:]
        assert ids == expected_ids
        seen.add(int(ids[0, 0]))
    assert len(seen) > 5  # It does not repeat one token.
    for name, array in session.state().items():
        np.testing.assert_allclose(array, past[name], atol=1e-3)


def test_a_cache_without_a_capacity_moves_less_than_twice_its_size(llama):
    _, artifact = llama
    session = artifact.session()
    workspaces = set()
    for _ in range(100):
        session.run({"ids": np.array([[1]])})
        workspaces.add(session.addresses[-2])
    assert len(workspaces) <= 7  # Its size doubles at least, from that at the first call.
    for state in session.states:
        final = 100 * HEADS * SIZE * 4
        assert 0 < state.moved_bytes < 2 * final
