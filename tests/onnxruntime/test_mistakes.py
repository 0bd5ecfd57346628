"""Tests that a mistake raises the same error as ONNX Runtime, with a message that names it."""

from __future__ import annotations

import pickle
import queue
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state
from small_models import affine, changed, named_batch

import farrier
import farrier.onnxruntime
from farrier.errors import FarrierError, InputMismatchError

onnxruntime.set_default_logger_severity(4)
X = np.ones((2, 3), np.float32)
MODEL = affine()


@pytest.fixture
def sessions():
    return farrier.InferenceSession(MODEL), onnxruntime.InferenceSession(MODEL)


def raised(call):
    """Return the exception that a call raises, or None."""
    try:
        call()
    except Exception as error:
        return error
    return None


def same(ours, theirs):
    """Check that the errors are of the same class, so that `except` clauses for ONNX Runtime catch
    ours."""
    assert theirs is not None
    assert isinstance(ours, type(theirs)), (repr(ours), repr(theirs))
    name = type(theirs).__name__
    if type(theirs).__module__ == state.__name__:
        assert isinstance(ours, getattr(farrier.onnxruntime, name))


CALLS = {
    "an input is missing": lambda s: s.run(None, {}),
    "another input's name": lambda s: s.run(None, {"q": X}),
    "an input too many": lambda s: s.run(None, {"x": X, "q": X}),
    "an output that is not": lambda s: s.run(["q"], {"x": X}),
    "outputs by one name": lambda s: s.run("z", {"x": X}),
    "f64 for f32": lambda s: s.run(None, {"x": X.astype("f8")}),
    "f16 for f32": lambda s: s.run(None, {"x": X.astype("f2")}),
    "i32 for f32": lambda s: s.run(None, {"x": X.astype("i4")}),
    "strings for f32": lambda s: s.run(None, {"x": np.full((2, 3), "a")}),
    "another rank": lambda s: s.run(None, {"x": X[0]}),
    "another size": lambda s: s.run(None, {"x": X[:, :2]}),
    "None": lambda s: s.run(None, {"x": None}),
    "a number": lambda s: s.run(None, {"x": 3.0}),
    "a numpy number": lambda s: s.run(None, {"x": np.float32(3)}),
    "a text": lambda s: s.run(None, {"x": "abc"}),
    "a ragged list": lambda s: s.run(None, {"x": [[1], [1, 2]]}),
    "a number too large": lambda s: s.run(None, {"x": [[10**400] * 3] * 2}),
    "a memoryview": lambda s: s.run(None, {"x": memoryview(X)}),
    "a feed that is a list": lambda s: s.run(None, [X]),
    "no feed": lambda s: s.run(None, None),
}


@pytest.mark.parametrize("mistake", CALLS)
def test_a_call_that_does_not_fit(sessions, mistake):
    ours, theirs = (raised(lambda s=s: CALLS[mistake](s)) for s in sessions)
    same(ours, theirs)
    assert type(ours).__name__ == type(theirs).__name__
    if not mistake.endswith(("list", "no feed")) or mistake == "a ragged list":
        assert isinstance(ours, FarrierError)


class Broken(dict):
    def __getitem__(self, name):
        raise KeyError("the feed is broken")


@pytest.mark.parametrize("feed", [Broken(x=X), {"x": [[10**400] * 3] * 2}, {"x": None}])
def test_an_error_in_another_thread_reaches_the_callback(sessions, feed):
    results_queue = queue.Queue()
    sessions[0].run_async(["y"], feed, lambda *what: results_queue.put(what), "mine")
    outputs, data, error = results_queue.get(timeout=20)
    assert (outputs, data) == ([], "mine")
    assert error


def bound(session, bind):
    def call():
        binding = session.io_binding()
        bind(binding)
        session.run_with_iobinding(binding)

    return call


OUT = np.zeros((3, 2))
BINDINGS = {
    "nothing": lambda b: None,
    "no output": lambda b: b.bind_cpu_input("x", X),
    "no input": lambda b: b.bind_output("y"),
    "an input that is not": lambda b: b.bind_cpu_input("q", X),
    "an output that is not": lambda b: (b.bind_cpu_input("x", X), b.bind_output("q")),
    "another dtype": lambda b: (b.bind_cpu_input("x", X.astype("f8")), b.bind_output("y")),
    "another shape": lambda b: (b.bind_cpu_input("x", X[:1]), b.bind_output("y")),
    "a list": lambda b: b.bind_cpu_input("x", [[1.0] * 3] * 2),
    "a device": lambda b: b.bind_output("y", "foo"),
    "memory of another shape": lambda b: (
        b.bind_cpu_input("x", X),
        b.bind_output("y", "cpu", 0, np.float32, (3, 2), OUT.ctypes.data),
    ),
    "memory of another dtype": lambda b: (
        b.bind_cpu_input("x", X),
        b.bind_output("y", "cpu", 0, np.float64, (2, 3), OUT.ctypes.data),
    ),
    "memory without a shape": lambda b: b.bind_output("y", "cpu", 0, None, None, OUT.ctypes.data),
}


@pytest.mark.parametrize("mistake", BINDINGS)
def test_a_binding_that_does_not_fit(sessions, mistake):
    ours, theirs = (raised(bound(s, BINDINGS[mistake])) for s in sessions)
    same(ours, theirs)
    assert isinstance(ours, FarrierError)
    assert not OUT.any()


ADDRESS = OUT.ctypes.data
UNTIDY = {
    "a shape of text": lambda b: b.bind_output("y", "cpu", 0, "f4", ("a",), ADDRESS),
    "a shape that is a number": lambda b: b.bind_output("y", "cpu", 0, "f4", 5, ADDRESS),
    "an address of text": lambda b: b.bind_output("y", "cpu", 0, "f4", (2, 3), "a"),
    "an input of None": lambda b: b.bind_ortvalue_input("x", None),
    "an output of None": lambda b: b.bind_ortvalue_output("y", None),
}


@pytest.mark.parametrize("mistake", UNTIDY)
def test_a_binding_of_no_sense(sessions, mistake):
    with pytest.raises(RuntimeError) as caught:
        UNTIDY[mistake](sessions[0].io_binding())
    assert isinstance(caught.value, FarrierError)


def test_outputs_in_memory_that_is_only_read_are_refused_before_any_is_written(sessions):
    value = farrier.onnxruntime.OrtValue
    written, fixed = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    fixed.flags.writeable = False
    binding = sessions[0].io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", value.ortvalue_from_numpy(written))
    binding.bind_ortvalue_output("z", value.ortvalue_from_numpy(fixed))
    with pytest.raises(InputMismatchError, match="output z is only read"):
        sessions[0].run_with_iobinding(binding)
    assert not written.any()
    with pytest.raises(InputMismatchError, match="only read"):
        value(fixed).update_inplace(X)


def test_a_shape_that_does_not_fit_is_told_by_the_model_s_names():
    session = farrier.InferenceSession(named_batch())
    with pytest.raises(InputMismatchError, match=r"the model takes \[batch, 3\]"):
        session.run(None, {"x": np.ones((2, 4), np.float32)})


def test_a_way_out_is_an_option_of_the_provider():
    def session(**options):
        farrier.InferenceSession(MODEL, providers=[("FarrierExecutionProvider", options)])

    with pytest.raises(FarrierError, match=r"provider option shapes"):
        session(typical={"N": 4})
    with pytest.raises(FarrierError, match="provider option threads 0"):
        session(threads=-1)
    with pytest.raises(FarrierError, match=r"provider option target FILE\.json"):
        session(target="pdp11")


def test_a_path_with_a_zero_byte():
    with pytest.raises(farrier.onnxruntime.NoSuchFile, match=r"a\\x00b"):
        farrier.InferenceSession("a\0b")


def test_a_binding_of_another_session(sessions):
    other = farrier.InferenceSession(MODEL).io_binding()
    with pytest.raises(ValueError, match="the session that made it"):
        sessions[0].run_with_iobinding(other)


def set_op(model):
    model.graph.node[0].op_type = "NoSuchOp"


def set_input(model):
    model.graph.node[0].input[0] = "undefined"


def set_type(model):
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT32


def set_opset(model):
    model.opset_import[0].version = 99


FILES = {
    "empty": b"",
    "junk": b"hello world this is no model",
    "cut": MODEL[: len(MODEL) // 2],
    "no graph": onnx.ModelProto(ir_version=8).SerializeToString(),
    "an operator that is not": changed(MODEL, set_op),
    "a name that is not": changed(MODEL, set_input),
    "types that clash": changed(MODEL, set_type),
    "a newer opset": changed(MODEL, set_opset),
}


@pytest.mark.parametrize("as_path", [True, False])
@pytest.mark.parametrize("mistake", FILES)
def test_a_file_that_is_no_model(tmp_path, mistake, as_path):
    model = FILES[mistake]
    if as_path:
        path = tmp_path / "m.onnx"
        path.write_bytes(model)
        model = str(path)
    ours = raised(lambda: farrier.InferenceSession(model))
    same(ours, raised(lambda: onnxruntime.InferenceSession(model)))
    assert isinstance(ours, FarrierError)


@pytest.mark.parametrize("path", ["nothing.onnx", "."])
def test_a_path_that_leads_to_no_file(tmp_path, path):
    place = tmp_path / path
    ours = raised(lambda: farrier.InferenceSession(place))
    same(ours, raised(lambda: onnxruntime.InferenceSession(place)))


@pytest.mark.parametrize("model", [5, None, bytearray(MODEL), onnx.ModelProto()])
def test_what_is_neither_path_nor_bytes(model):
    ours = raised(lambda: farrier.InferenceSession(model))
    same(ours, raised(lambda: onnxruntime.InferenceSession(model)))


def test_an_error_is_farrier_s_onnx_runtime_s_and_survives_pickling(sessions):
    (ours, _) = sessions
    with pytest.raises(InputMismatchError, match="takes tensor\\(float\\)") as caught:
        ours.run(None, {"x": X.astype("f8")})
    error = pickle.loads(pickle.dumps(caught.value))
    assert type(error) is type(caught.value)
    assert isinstance(error, state.InvalidArgument)
    assert (error.message, error.hint) == (caught.value.message, caught.value.hint)


def test_without_onnx_runtime_its_names_are_farrier_s(cache):
    program = f"""
import sys
import numpy as np
import farrier.onnxruntime as ort
session = ort.InferenceSession({MODEL!r})
try:
    session.run(None, {{"x": np.ones((2, 3))}})
except ort.InvalidArgument as error:
    print(type(error).__mro__[1].__name__, "onnxruntime" in sys.modules)
"""
    # The session is compiled before, because compiling verifies by ONNX Runtime.
    farrier.InferenceSession(MODEL)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "InputMismatchError False\n", done.stderr


def test_a_call_may_override_an_initializer(sessions):
    for feed in ({"b": np.full(1, 7, np.float32)}, {}, {"b": np.zeros(1, np.float32)}):
        results = [session.run(None, {"x": X, **feed}) for session in sessions]
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert sessions[0].get_overridable_initializers() == []


def test_an_artifact_has_its_initializers_as_constants(tmp_path):
    farrier.compile(MODEL, threads=1, verify=False).save(tmp_path / "m.farrier")
    session = farrier.InferenceSession(tmp_path / "m.farrier")
    with pytest.raises(farrier.onnxruntime.NotImplemented, match="'b' has a value") as caught:
        session.run(None, {"x": X, "b": np.zeros(1, np.float32)})
    assert "--shape b=" in caught.value.hint
