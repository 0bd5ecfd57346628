"""Models compiled with no option and called at sizes that the model's dims suggest."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from bench import public
from bench.calls import KNOWN, Given, Input, arrays, calls, parse_call, show
from bench.compare import difference
from bench.models import TRAINED
from farrier.errors import UsageError


def model(op, *shape):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "tiny", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def shapes(*inputs):
    return [[spec.shape for spec in call.values()] for call in calls("unheard of", inputs)]


def test_sizes_by_name_and_place():
    image = Input("x", "f4", ("batch", 3, "height", "width"))
    assert shapes(image) == [[(1, 3, 224, 224)], [(2, 3, 160, 192)], [(3, 3, 256, 320)]]
    assert shapes(Input("x", "f4", (None, 3, None, None))) == shapes(image)
    cached = Input("past", "f4", ("batch", 4, "past+seq", 32))
    assert shapes(cached)[1] == [(2, 4, 34, 32)]
    assert shapes(Input("x", "f4", (1, 7))) == [[(1, 7)]]


def test_a_call_in_words():
    call = parse_call("waveforms=2,300 lens=2@300 sr=@16000 ids=4@1..3")
    inputs = [
        Input("waveforms", "f4", (None, None)),
        Input("lens", "i8", (None,)),
        Input("sr", "i8", ()),
        Input("ids", "i8", (4,)),
        Input("fixed", "f2", (5, 6)),
    ]
    by_name = arrays(call, inputs, np.random.default_rng(0))
    assert [array.dtype for array in by_name.values()] == ["f4", "i8", "i8", "i8", "f2"]
    assert by_name["lens"].tolist() == [300, 300]
    assert by_name["sr"] == 16000
    assert by_name["fixed"].shape == (5, 6)
    assert set(by_name["ids"]) <= {1, 2, 3}
    assert show(call) == "2×300 2 4"
    with pytest.raises(UsageError, match="cannot read 'x:3'"):
        parse_call("x:3")


def test_integers_are_an_index_of_whatever_there_is():
    inputs = [Input("edges", "i8", (2, 90)), Input("nodes", "f4", (7, 3))]
    by_name = arrays({}, inputs, np.random.default_rng(0))
    assert by_name["edges"].max() < 2


def test_listed_calls_are_of_models_that_there_are():
    assert set(KNOWN) <= set(TRAINED)
    for texts in KNOWN.values():
        assert len({tuple(sorted(parse_call(text).items(), key=str)) for text in texts}) == 3


@given(st.lists(st.floats(-10, 10, width=32), min_size=1), st.integers(0, 99), st.data())
def test_what_is_no_number_is_a_difference(values, place, data):
    wanted = np.array(values)
    assert difference({"y": wanted.copy()}, {"y": wanted}) == 0.0
    actual = wanted.copy()
    odd = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    actual[place % len(actual)] = odd
    assert difference({"y": actual}, {"y": wanted}) == np.inf
    assert difference({"y": wanted}, {"y": actual}) == np.inf
    assert difference({"y": actual.copy()}, {"y": actual}) == 0.0


def test_difference_is_a_share_of_the_range():
    wanted = np.array([-1.0, 3.0])
    assert difference({"y": wanted + 0.1}, {"y": wanted}) == pytest.approx(0.025)
    assert difference({"y": wanted[:1]}, {"y": wanted}) == np.inf


@pytest.mark.long
def test_a_model_is_compiled_and_called(tmp_path):
    path = tmp_path / "relu.onnx"
    onnx.save(model("Relu", "batch", 5), path)
    result = public.try_model(path, "relu")
    assert [size.shapes for size in result.sizes] == ["1×5", "2×5", "3×5"]
    assert [size.error for size in result.sizes] == [0.0, 0.0, 0.0]
    assert result.verdict == "right"


@pytest.mark.long
def test_what_farrier_says(tmp_path):
    path = tmp_path / "unknown.onnx"
    onnx.save(model("Transmogrify", "batch", 5), path)
    result = public.attempt(path, "unknown")
    assert result.verdict == "says"
    assert "Transmogrify" in str(result)


def test_verdicts():
    def verdict(*sizes, **fields):
        return public.Result("m", 1.0, sizes, **fields).verdict

    right = public.Size("1", 1e-6)
    assert verdict(right) == "right"
    assert verdict(right, public.Size("1", said="ONNX Runtime refuses: …")) == "right"
    assert verdict(public.Size("1", said="ONNX Runtime refuses: …")) == "WRONG"
    assert verdict(right, public.Size("1", said="refused: …", is_refused=True)) == "says"
    assert verdict(right, public.Size("1", 2e-4)) == "WRONG"
    assert verdict(public.Size("1", 2e-4, 9e-5, 3e-4)) == "right"
    assert verdict(public.Size("1", 2e-4, 2e-2, 1e-2)) == "right"
    assert verdict(public.Size("1", 2e-2, 2.1e-2, 1e-2)) == "WRONG"
    assert verdict(said="a traceback", is_defect=True) == "WRONG"
    assert Given((2,), 3).array("i8", 5, np.random.default_rng(0)).tolist() == [3, 3]


def test_a_name_that_is_no_model():
    with pytest.raises(UsageError, match="nowhere is no folder"):
        public.models(["nowhere"])
