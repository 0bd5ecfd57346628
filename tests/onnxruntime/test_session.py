"""A session computes, and says of its model, what ONNX Runtime's does."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from small_models import affine, info, model_of, named_batch, sequence, strings

import farrier
import farrier.onnxruntime as ort
from farrier.errors import UsageError
from farrier.onnxruntime.values import ELEMENT_CODES

onnxruntime.set_default_logger_severity(4)
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
KINDS = (farrier, onnxruntime)


def both(data):
    return [kind.InferenceSession(data) for kind in KINDS]


@pytest.mark.parametrize("names", [None, [], ["z"], ["z", "y"], ("y",), ["z", "z"]])
def test_outputs_by_name(names):
    ours, theirs = (session.run(names, {"x": X}) for session in both(affine()))
    assert len(ours) == len(theirs)
    for own, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(own, expected)
        assert own.dtype == expected.dtype


@pytest.mark.parametrize(
    "form",
    [
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: a.tolist(),
        lambda a: np.frombuffer(b"\0" * 4 + a.tobytes(), np.float32)[1:].reshape(a.shape),
    ],
)
def test_inputs_of_any_order(form):
    for session in both(affine()):
        np.testing.assert_array_equal(session.run(["y"], {"x": form(X)})[0], 2 * X + 1)


def test_a_byte_order_is_no_dtype():
    session = farrier.InferenceSession(affine())
    np.testing.assert_array_equal(session.run(["y"], {"x": X.astype(">f4")})[0], 2 * X + 1)


def test_strings_are_objects():
    values = np.array(["a", "ß→"], object)
    ours, theirs = (session.run(None, {"x": values})[0] for session in both(strings()))
    assert ours.dtype == theirs.dtype == object
    assert ours.tolist() == theirs.tolist() == values.tolist()
    assert type(ours[0]) is str


def test_a_sequence_is_a_list():
    ours, theirs = (session.run(["z", "y"], {"x": X}) for session in both(sequence()))
    assert type(ours[1]) is type(theirs[1]) is list
    np.testing.assert_array_equal(ours[1], theirs[1])
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("model", [affine, strings, sequence])
def test_the_model_is_described_alike(model):
    ours, theirs = both(model())
    for mine, other in zip(
        (*ours.get_inputs(), *ours.get_outputs()),
        (*theirs.get_inputs(), *theirs.get_outputs()),
        strict=True,
    ):
        assert (mine.name, mine.type, mine.shape) == (other.name, other.type, other.shape)


def test_metadata():
    model = onnx.load_model_from_string(affine())
    helper.set_model_props(model, {"names": "a, b"})
    model.graph.doc_string = "of the graph"
    ours, theirs = (session.get_modelmeta() for session in both(model.SerializeToString()))
    assert ours.custom_metadata_map == {"names": "a, b"}
    assert ours.version == 3
    names = {name for name in dir(theirs) if not name.startswith("_")}
    assert len(names) == 7
    for name in names:
        assert getattr(ours, name) == getattr(theirs, name), name


def test_a_dim_is_fixed_by_its_name():
    for kind in KINDS:
        options = kind.SessionOptions()
        options.add_free_dimension_override_by_name("batch", 4)
        session = kind.InferenceSession(named_batch(), options)
        (x,), (y,) = session.get_inputs(), session.get_outputs()
        assert x.shape == y.shape == [4, 3]
        with pytest.raises(Exception, match=r"\b5\b") as caught:
            session.run(None, {"x": np.ones((5, 3), np.float32)})
        assert isinstance(caught.value, ort.InvalidArgument) or kind is onnxruntime


def test_what_the_model_leaves_open_stays_open():
    ours, theirs = both(named_batch())
    assert ours.get_inputs()[0].shape == theirs.get_inputs()[0].shape == ["batch", 3]
    assert ours.get_outputs()[0].shape == ["batch", 3]
    for batch in (1, 5, 2):
        x = np.resize(X, (batch, 3))
        np.testing.assert_array_equal(ours.run(None, {"x": x}), theirs.run(None, {"x": x}))
    for session in (ours, theirs):
        with pytest.raises(Exception, match="3") as caught:
            session.run(None, {"x": X[:, :2]})
        assert "InvalidArgument" in {kind.__name__ for kind in type(caught.value).__mro__}


def test_every_element_type_has_onnx_s_name_and_number():
    from farrier.artifact.declaration import tensor_type

    for name, code in ELEMENT_CODES.items():
        word = TensorProto.DataType.Name(code).lower()
        shown = {"float": "float", "double": "double"}.get(word, word)
        assert tensor_type(name) == f"tensor({shown})"


def test_bound_memory_is_read_and_written_in_place():
    for kind in KINDS:
        session = kind.InferenceSession(affine())
        binding = session.io_binding()
        x, y = X.copy(), np.zeros_like(X)
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
        binding.bind_output("z")
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y, 2 * X + 1)
        x[:] = 7
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y, np.full_like(X, 15))
        first, second = binding.get_outputs()
        assert first.data_ptr() == y.ctypes.data
        if kind is farrier:  # ONNX Runtime's session has no addresses.
            assert y.ctypes.data in session._session.addresses
        assert (second.shape(), second.data_type()) == ([2, 3], "tensor(float)")
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], x)
        binding.clear_binding_outputs()
        assert binding.copy_outputs_to_cpu() == []


def test_an_output_may_be_written_where_an_input_is_read():
    session = farrier.InferenceSession(affine())
    value = farrier.OrtValue.ortvalue_from_numpy(X.copy())
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", value)
    session.run_with_iobinding(binding)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(value.numpy(), 4 * X + 3)


def test_values():
    for kind in KINDS:
        x = X.copy()
        value = kind.OrtValue.ortvalue_from_numpy(x)
        properties = (
            value.shape(),
            value.data_type(),
            value.element_type(),
            value.device_name(),
            value.is_tensor(),
            value.is_sparse_tensor(),
            value.is_tensor_sequence(),
            value.has_value(),
            value.tensor_size_in_bytes(),
        )
        assert properties == ([2, 3], "tensor(float)", 1, "cpu", True, False, False, True, 24)
        assert value.data_ptr() == x.ctypes.data
        value.update_inplace(2 * X)
        np.testing.assert_array_equal(x, 2 * X)
        np.testing.assert_array_equal(np.from_dlpack(value), 2 * X)
        for wrong in (
            lambda k=kind: k.OrtValue.ortvalue_from_numpy([1, 2]),
            lambda k=kind: k.OrtValue.ortvalue_from_numpy(np.array(["a"])),
            lambda k=kind: k.OrtValue.ortvalue_from_numpy(X, "cuda", 0),
            lambda k=kind: k.OrtValue.ortvalue_from_shape_and_type([-1], np.float32),
            lambda v=value: v.update_inplace(X[:1]),
        ):
            with pytest.raises(RuntimeError):
                wrong()
        value_bf16 = kind.OrtValue.ortvalue_from_shape_and_type([4], TensorProto.BFLOAT16)
        assert value_bf16.data_type() == "tensor(bfloat16)"
        (y,) = kind.InferenceSession(affine()).run_with_ort_values(["y"], {"x": value})
        np.testing.assert_array_equal(y.numpy(), 4 * X + 1)


def test_a_call_in_the_background():
    for session in both(affine()):
        done = threading.Event()
        calls = []

        def call(outputs, data, error, done=done, calls=calls):
            calls.append((outputs, data, error))
            done.set()

        session.run_async(["y"], {"x": X}, call, "mine")
        assert done.wait(20)
        ((outputs, data, error),) = calls
        assert (data, error) == ("mine", "")
        np.testing.assert_array_equal(outputs[0], 2 * X + 1)


def test_threads_call_one_session():
    session = farrier.InferenceSession(affine())
    wrong = []

    def call(number):
        x = np.full((2, 3), number, np.float32)
        for _ in range(200):
            if not np.array_equal(session.run(["y"], {"x": x})[0], 2 * x + 1):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_call_that_is_ended_before_it_starts():
    for kind in KINDS:
        options = kind.RunOptions()
        options.terminate = True
        with pytest.raises(Exception, match="terminate") as caught:
            kind.InferenceSession(affine()).run(None, {"x": X}, options)
        assert type(caught.value).__name__ == "Fail"


def test_providers():
    session = farrier.InferenceSession(affine(), providers=["CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="no provider CUDAExecutionProvider"):
        session = farrier.InferenceSession(
            affine(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
        )
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(ValueError, match="same length"):
        farrier.InferenceSession(affine(), None, ["CPUExecutionProvider"], [{}, {}])
    with pytest.raises(UsageError, match="unknown option colour"):
        farrier.InferenceSession(affine(), providers=[("FarrierExecutionProvider", {"colour": 1})])


def test_options_of_the_compiler_stand_with_the_provider():
    provider_options = {
        "max_layer_error": "0",
        "cache": "false",
        "verify": "0",
        "target": "x86-64-v3",
    }
    session = farrier.InferenceSession(
        affine(), providers=[("FarrierExecutionProvider", provider_options)]
    )
    options = session.get_provider_options()["FarrierExecutionProvider"]
    assert (options["max_layer_error"], options["target"]) == ("0", "x86-64-v3")


def test_options_that_do_not_apply_are_named_once():
    options = farrier.SessionOptions()
    options.enable_profiling = True
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.intra_op_num_threads = 1
    with pytest.warns(UserWarning, match="do not apply") as caught:
        session = farrier.InferenceSession(affine(), options)
    (warning,) = caught
    for name in ("enable_profiling", "graph_optimization_level", "session.use_env_allocators"):
        assert name in str(warning.message)
    assert "intra_op" not in str(warning.message)
    assert warning.filename == __file__
    assert session._session.threads == 1
    options.log_severity_level = 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        farrier.InferenceSession(affine(), options)


def test_onnx_runtime_s_own_options_are_taken():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 3
    with pytest.warns(UserWarning, match=r"inter_op_num_threads.*does not tell"):
        session = farrier.InferenceSession(affine(), options)
    assert session._session.threads == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("intra_op_num_threads", "2"), ("enable_profiling", 1), ("graph_optimization_level", 99)],
)
def test_an_option_of_another_type(name, value):
    for kind in KINDS:
        # ONNX Runtime converts its value to a bool.
        if kind is farrier or name != "enable_profiling":
            with pytest.raises(TypeError):
                setattr(kind.SessionOptions(), name, value)
        with pytest.raises(AttributeError):
            kind.SessionOptions().colour = 1
        with pytest.raises(RuntimeError, match="key"):
            kind.SessionOptions().get_session_config_entry("a")


def test_what_would_change_results_is_refused():
    options = farrier.SessionOptions()
    with pytest.raises(ort.NotImplemented, match="initializers from outside"):
        options.add_initializer("w", None)
    with pytest.raises(ort.NotImplemented, match="operators from a library"):
        options.register_custom_ops_library("ops.so")


def test_an_artifact_is_a_model(tmp_path):
    path = tmp_path / "net.farrier"
    farrier.compile(affine(), verify=False).save(path)
    options = farrier.SessionOptions()
    options.intra_op_num_threads = 1
    session = farrier.InferenceSession(path, options)
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], 2 * X + 1)
    assert session._session.threads == 1
    with pytest.warns(UserWarning, match="compiled already"):
        farrier.InferenceSession(path, providers=[("FarrierExecutionProvider", {"trials": 3})])


def test_a_model_from_the_cache_needs_no_compiler(cache, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(affine())
    farrier.InferenceSession(path)
    program = """
import sys, numpy as np
import farrier
session = farrier.InferenceSession(sys.argv[1])
session.run(None, {"x": np.ones((2, 3), np.float32)})
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
    )
    assert not {"onnx", "llvmlite", "xgboost", "ml_dtypes", "onnxruntime"} & set(
        done.stdout.split()
    )


def test_a_model_that_is_not_verified():
    """No random input has a result: a TopK of seven, among four."""
    node = helper.make_node("TopK", ["x", "k"], ["y", "at"])
    model = model_of(
        [helper.make_node("Add", ["n", "n6"], ["k"]), node],
        [info("x", TensorProto.FLOAT, [2, 4]), info("n", TensorProto.INT64, [1])],
        [info("y", TensorProto.FLOAT, [2, None])],
        {"n6": np.array([7])},
    )
    with pytest.warns(UserWarning, match="model is not verified: none of .* random inputs"):
        both(model)


def test_a_node_that_the_values_of_inputs_break(tmp_path):
    """ONNX Runtime has one class or another for it, by the node."""
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    model = model_of(
        [node],
        [info("x", TensorProto.FLOAT, [2, 3]), info("s", TensorProto.INT64, [2])],
        [info("y", TensorProto.FLOAT, [None, None])],
    )
    for session in both(model):
        feed = {"x": X, "s": np.array([4, 5])}
        with pytest.raises(Exception, match=r"Reshape|size|shape") as caught:
            session.run(None, feed)
        names = {kind.__name__ for kind in type(caught.value).__mro__}
        assert names & {"RuntimeException", "InvalidArgument", "Fail"}
