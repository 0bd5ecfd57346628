import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.errors import UsageError
from farrier.options import CompileOptions, parse_budget
from farrier.options.shapes import OpenDim, parse_dim, parse_hot, parse_shapes
from farrier.options.states import HeldState, parse_state, parse_states

shapes = st.dictionaries(
    st.text("abcx.:/=", min_size=1, max_size=6),
    st.lists(
        st.integers(0, 9000)
        | st.sampled_from(["?", "n", "n:1..8", "?:2..", "a/b.c-d:0..3", "h:3..64:32"]),
        max_size=5,
    ).map(tuple),
)


@given(
    st.builds(
        CompileOptions,
        shapes=shapes,
        trials=st.none() | st.integers(0, 10**6),
        budget_s=st.none() | st.floats(0, 1e6),
        hot=st.lists(st.dictionaries(st.text(), st.integers(0, 9000))).map(tuple),
        threads=st.integers(0, 512),
        max_layer_error=st.floats(0, 1),
        verify=st.booleans(),
        precision=st.sampled_from(["f32", "bf16"]),
        cores=st.integers(0, 1024),
        states=st.dictionaries(
            st.sampled_from(["past", "x:0", "h=0", "cache/k"]),
            st.sampled_from(["y", "y:0", "y:0:capacity=3", "y:initial=-1.5,axis=-1"]),
        ),
    )
)
def test_options_survive_json(options):
    assert CompileOptions.from_dict(options.to_dict()) == options


def test_cores_are_bounded_and_written_where_they_are_given():
    assert "cores" not in CompileOptions().to_dict()
    assert CompileOptions(cores=3).to_dict()["cores"] == 3
    for wrong in (-1, 1025):
        with pytest.raises(UsageError, match=f"cores is {wrong}"):
            CompileOptions(cores=wrong)


def test_states_are_written_where_they_are_given():
    assert "states" not in CompileOptions().to_dict()
    states = parse_states(["past.*=present.*:capacity=1024", "h=h2"])
    assert CompileOptions(states=states).to_dict()["states"] == states
    state = parse_state("past.*", states["past.*"])
    assert state == HeldState("past.*", "present.*", capacity=1024)
    assert parse_state("x:0", "y:0:axis=-1,initial=2.5") == HeldState("x:0", "y:0", -1, 0, 2.5)


@pytest.mark.parametrize(
    "text",
    [
        "past",
        "past=",
        "=present",
        "past=present:capacity=0",
        "past=present:capacity=-3",
        "past=present:capacity=x",
        "past=present:axis=2,size=3",
        "past=present:axis=1,axis=2",
        "past=present:initial=nan",
        "past.*=present",
        "*past*=*present*",
    ],
)
def test_a_malformed_state_is_named(text):
    with pytest.raises(UsageError, match=r"past|present") as error:
        parse_states([text])
    assert "--state" in error.value.hint


def test_a_state_declared_twice_is_refused():
    with pytest.raises(UsageError, match="declared twice"):
        parse_states(["a=b", "a=c"])


@given(shapes.filter(lambda s: all(s.values())))
def test_shapes_read_back_as_they_are_written(wanted):
    texts = [f"{name}={','.join(map(str, dims))}" for name, dims in wanted.items()]
    assert parse_shapes(texts) == wanted


@pytest.mark.parametrize(
    "text", ["x", "=1,2", "x=a b", "x=1,,2", "x=n:8..1", "x=n:1", "x=n:3..5:7", "x=-1,3", "x=1.5"]
)
def test_a_malformed_shape_is_named(text):
    with pytest.raises(UsageError) as caught:
        parse_shapes([text])
    assert repr(text) in caught.value.message
    assert "--shape" in caught.value.hint


def test_two_shapes_for_one_input_are_refused():
    with pytest.raises(UsageError, match="two shapes are given for 'x'"):
        parse_shapes(["x=1,3", "y=2", "x=1,4"])


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("7", 7),
        ("n", OpenDim("n")),
        ("?", OpenDim("")),
        ("n:1..8", OpenDim("n", (1, 8, 1))),
        ("?:0..", OpenDim("", (0, 65536, 1))),
        ("h:32..640:32", OpenDim("h", (32, 640, 32))),
        ("n:70000..", OpenDim("n", (70000, 70000, 1))),
    ],
)
def test_dims(text, dim):
    assert parse_dim(text) == dim


def test_hot_sizes():
    assert parse_hot(["batch=1,a=b=640", "batch=8"]) == ({"batch": 1, "a=b": 640}, {"batch": 8})
    for text in ("", "n", "n=", "n=x", "n=1,n=2", "=3"):
        with pytest.raises(UsageError, match=re.escape(repr(text))):
            parse_hot([text])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("2m", 120), ("1h", 3600), ("0.5m", 30), ("0", 0)],
)
def test_budgets(text, seconds):
    assert math.isclose(parse_budget(text), seconds)


@pytest.mark.parametrize("text", ["", "s", "fast", "-1s", "inf", "nan", "1d"])
def test_a_malformed_budget_is_named(text):
    with pytest.raises(UsageError, match="budget"):
        parse_budget(text)


def test_an_unknown_option_is_named_and_the_known_ones_are_listed():
    with pytest.raises(UsageError) as caught:
        CompileOptions.from_dict({"trails": 3})
    assert "trails" in caught.value.message
    assert "trials" in caught.value.hint


def test_an_unknown_precision_is_named():
    with pytest.raises(UsageError) as caught:
        CompileOptions(precision="fp8")
    assert "'fp8'" in caught.value.message


@pytest.mark.parametrize(
    "bad",
    [{"trials": -1}, {"budget_s": -0.1}, {"threads": -2}, {"max_layer_error": -1e-6}],
)
def test_negative_numbers_are_refused(bad):
    with pytest.raises(UsageError):
        CompileOptions(**bad)


def test_numbers_of_numpy_s_are_python_s():
    eight = np.int64(8)
    options = CompileOptions(
        shapes={"x": (eight, "N")},
        typical={"N": eight},
        hot=({"N": eight},),
        trials=eight,
        threads=np.uint8(8),
        seed=np.int32(8),
        budget_s=np.float32(0.5),
    )
    again = CompileOptions.from_dict(json.loads(json.dumps(options.to_dict())))
    assert again == options


@pytest.mark.parametrize(
    "text",
    [
        {"trials": 1.5},
        {"threads": "2"},
        {"seed": None},
        {"budget_s": "soon"},
        {"max_layer_error": {}},
        {"typical": {"N": 1.5}},
        {"hot": ({"N": "a"},)},
    ],
)
def test_what_is_no_number_is_refused(text):
    with pytest.raises(UsageError, match=r"no (whole )?number"):
        CompileOptions(**text)
