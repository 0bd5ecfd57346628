"""Weights in files of their own: found, mapped, held to what the message says; all else refused."""

import gc
import hashlib
import os
import re
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import EncodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.errors import FarrierError, InvalidModelError
from farrier.files.mapped import pages_of
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import Model
from farrier.progress import StageFinished

SHAPE = (64, 48)


def weights():
    return np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)


def message(keys, dtype=TensorProto.FLOAT, shape=SHAPE):
    """A model of one product whose weights have these keys of external data."""
    tensor = TensorProto(name="w", data_type=dtype, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in keys.items():
        tensor.external_data.add(key=key, value=str(value))
    x = helper.make_tensor_value_info("x", dtype, [2, shape[0]])
    y = helper.make_tensor_value_info("y", dtype, [2, shape[1]])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [tensor]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


@pytest.fixture
def folder(tmp_path):
    """One with a model of 12,288 bytes of weights, from byte 4,096 on of its data."""
    place = tmp_path / "models"
    place.mkdir()
    (place / "m.onnx.data").write_bytes(bytes(4096) + weights().tobytes())
    save(place, location="m.onnx.data", offset=4096, length=4 * weights().size)
    return place


def save(folder, **keys):
    (folder / "m.onnx").write_bytes(message(keys))


def test_weights_are_views_of_the_file(folder):
    (constant,) = import_model(Model.of_path(folder / "m.onnx")).graph.constants
    np.testing.assert_array_equal(constant.data, weights())
    assert pages_of(constant.data) is not None
    assert not constant.data.flags.writeable


def test_a_model_compiles_by_its_path(folder):
    artifact = farrier.compile(folder / "m.onnx", threads=1)
    x = np.ones((2, 64), np.float32)
    np.testing.assert_allclose(artifact.run({"x": x})["y"], x @ weights(), rtol=1e-5, atol=1e-5)
    assert artifact.manifest.name == "m"


@given(offset=st.integers(0, 300), has_length=st.booleans(), extra=st.integers(0, 9))
def test_any_offset_will_do(tmp_path_factory, offset, has_length, extra):
    folder = tmp_path_factory.mktemp("models")
    (folder / "w").write_bytes(bytes(offset) + weights().tobytes() + bytes(extra))
    keys = {"location": "w", "offset": offset}
    save(folder, **keys | ({"length": 4 * weights().size} if has_length else {}))
    (constant,) = import_model(Model.of_path(folder / "m.onnx")).graph.constants
    np.testing.assert_array_equal(constant.data, weights())


def test_four_bits_an_element(tmp_path):
    elements = np.arange(-8, 7, dtype=np.int8)
    tensor = helper.make_tensor("w", TensorProto.INT4, [3, 5], elements)
    (tmp_path / "w").write_bytes(tensor.raw_data or bytes(tensor.int32_data))
    keys = {"location": "w", "length": 8}
    proto = onnx.load_from_string(message(keys, TensorProto.INT4, (3, 5)))
    proto.graph.node[0].CopyFrom(helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    proto.opset_import[0].version = 21
    imported = import_model(Model.of_bytes(proto.SerializeToString(), folder=tmp_path))
    (constant,) = imported.graph.constants
    np.testing.assert_array_equal(constant.data.astype(np.float32).ravel(), elements)


def test_tensors_of_nodes_and_of_graphs_in_them(tmp_path):
    def external(name, value):
        (tmp_path / name).write_bytes(np.full(6, value, np.float32).tobytes())
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[6])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=name)
        return tensor

    def branch(name, value):
        out = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [6])
        nodes = [helper.make_node("Add", ["x", name], [f"{name}_out"])]
        return helper.make_graph(nodes, name, [], [out], [external(name, value)])

    then, otherwise = branch("t", 1.0), branch("e", 2.0)
    nodes = [
        helper.make_node("Constant", [], ["k"], value=external("k", 4.0)),
        helper.make_node("If", ["c"], ["b"], then_branch=then, else_branch=otherwise),
        helper.make_node("Add", ["b", "k"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [6])
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x, c], [y]), opset_imports=[helper.make_opsetid("", 17)]
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    model = Model.of_path(path)
    assert set(model.locations) == {"k", "t", "e"}
    artifact = farrier.compile(model, threads=1)
    for condition, expected in ((True, 5.0), (False, 6.0)):
        (output,) = artifact.run({"x": np.zeros(6, np.float32), "c": np.array(condition)}).values()
        np.testing.assert_array_equal(output, np.full(6, expected, np.float32))


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("/etc/hostname", "which is an absolute path"),
        ("../secret", "which leads out of the model's folder"),
        ("a/../../secret", "which leads out of the model's folder"),
        ("C:\\w", "which is not a path of a file"),
        ("", "which is not a path of a file"),
        ("missing", "no such file: .*models/missing"),
        (".", "is a directory"),
        ("pipe", "is not a regular file"),
        ("link", "a link to .*secret, which is not in the model's folder"),
        ("folder/secret", "a link to .*secret, which is not in the model's folder"),
        ("circle", "its links go in a circle"),
    ],
)
def test_what_is_no_file_of_the_models_folder_is_not_read(folder, location, words):
    (folder.parent / "secret").write_bytes(weights().tobytes())
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("../secret")
    (folder / "folder").symlink_to("..")
    (folder / "circle").symlink_to("circle")
    save(folder, location=location)
    with pytest.raises(
        InvalidModelError, match=f"initializer 'w' .*{re.escape(repr(location))}.*{words}"
    ):
        import_model(Model.of_path(folder / "m.onnx"))


@pytest.mark.parametrize("location", ["a\n\x1b[2J" + 256 * "é", "ab/" * 100_000 + "c"])
def test_a_location_too_long_for_a_file_is_shown_in_part(folder, location):
    save(folder, location=location)
    for read in (import_model, Model.check_complete):
        with pytest.raises(InvalidModelError, match="which is too long for a file") as raised:
            read(Model.of_path(folder / "m.onnx"))
        assert repr(location[:50])[1:-1] in raised.value.message
        assert len(raised.value.message) < 500
        assert raised.value.message.isprintable()


def test_links_within_the_folder_and_of_the_whole_model_are_followed(folder, tmp_path):
    (folder / "m.onnx.data").rename(folder / "blob")
    (folder / "m.onnx.data").symlink_to("blob")
    snapshot = tmp_path / "snapshot"  # A cache links to the files of a model.
    snapshot.mkdir()
    for name in ("m.onnx", "m.onnx.data"):
        (snapshot / name).symlink_to(folder / name)
    for place in (folder, snapshot):
        (constant,) = import_model(Model.of_path(place / "m.onnx")).graph.constants
        np.testing.assert_array_equal(constant.data, weights())


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"offset": 4097}, "12288 bytes from byte 4097 on of the data file .* has 16384"),
        ({"offset": 1 << 62}, "has 16384"),
        ({"offset": -1}, "offset is '-1'"),
        ({"offset": "4e3"}, "offset is '4e3'"),
        ({"offset": "9" * 5000}, "offset is"),
        ({"length": 12284}, "by its type and shape it has 12288"),
        ({"length": 12292}, "by its type and shape it has 12288"),
        ({"checksum": "0" * 40}, "whose checksum is not that of .*m.onnx.data"),
    ],
)
def test_what_does_not_fit_the_file_is_refused(folder, keys, words):
    save(folder, **{"location": "m.onnx.data"} | keys)
    with pytest.raises(InvalidModelError, match=words) as caught:
        import_model(Model.of_path(folder / "m.onnx"))
    assert "initializer 'w'" in caught.value.message


def test_a_right_checksum_is_right(folder):
    digest = hashlib.sha1((folder / "m.onnx.data").read_bytes()).hexdigest()
    save(folder, location="m.onnx.data", offset=4096, checksum=digest.upper())
    import_model(Model.of_path(folder / "m.onnx"))


def test_a_short_file_is_named_with_tensor_and_location(folder):
    os.truncate(folder / "m.onnx.data", 4096 + 100)
    with pytest.raises(InvalidModelError) as caught:
        farrier.compile(folder / "m.onnx")
    for word in ("initializer 'w'", "'m.onnx.data'", str(folder / "m.onnx.data"), "4196"):
        assert word in caught.value.message


def test_elements_in_the_message_and_in_a_file_are_refused(folder):
    proto = onnx.load(folder / "m.onnx", load_external_data=False)
    proto.graph.initializer[0].raw_data = weights().tobytes()
    model = Model.of_bytes(proto.SerializeToString(), folder=folder)
    with pytest.raises(InvalidModelError, match="'w' has elements in the message and in a file"):
        import_model(model)


def test_a_model_in_memory_asks_for_its_path(folder):
    path = folder / "m.onnx"
    for model in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(InvalidModelError, match=r"pass the path of the \.onnx file") as caught:
            farrier.compile(model)
        assert "'w'" in caught.value.message
        farrier.compile(model, folder=folder, verify=False)
    farrier.compile(onnx.load(folder / "m.onnx"), verify=False)


def test_files_that_lie_elsewhere(folder, tmp_path):
    blobs = [tmp_path / name for name in ("a1", "b2")]
    for name, blob in zip(("m.onnx", "m.onnx.data"), blobs, strict=True):
        shutil.move(folder / name, blob)
    model = Model.of_files(blobs[0], {"m.onnx.data": blobs[1]}, "mine")
    assert model.files == (("", blobs[0]), ("m.onnx.data", blobs[1]))
    artifact = farrier.compile(model, threads=1)
    assert artifact.manifest.name == "mine"
    assert artifact.report["verification"]["reference"].startswith("ONNX Runtime")
    with pytest.raises(InvalidModelError, match=r"'m\.onnx\.data', which was not given"):
        import_model(Model.of_files(blobs[0], {"other": blobs[1]}))


def _rewritten(path):
    path.write_bytes(path.read_bytes())


def _replaced(path):
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


@pytest.mark.parametrize("change", [_rewritten, _replaced, Path.unlink])
@pytest.mark.parametrize("stage", ["import", "verify"])
@pytest.mark.parametrize("name", ["m.onnx", "m.onnx.data"])
def test_a_file_that_changes_meanwhile_is_an_error(folder, name, stage, change):
    def listener(event):
        if event == StageFinished(stage, getattr(event, "seconds", 0.0)):
            change(folder / name)

    with pytest.raises(InvalidModelError, match=f"{name} .* changed while it was read") as caught:
        farrier.compile(folder / "m.onnx", threads=1, listener=listener)
    is_data = "initializer 'w' is in the data file 'm.onnx.data'" in caught.value.message
    assert is_data == (name == "m.onnx.data")


_SHRINKS = """
import os, sys
import farrier
from farrier.artifact import params
from farrier.packaging.onnxruntime import OnnxRuntime

def shrinks(inner):
    def shrunk(*args, **kwargs):
        os.truncate(sys.argv[1] + ".data", 0)
        return inner(*args, **kwargs)
    return shrunk

match sys.argv[2]:
    case "reference":  # before ONNX Runtime, in a process of its own, opens it
        OnnxRuntime.run = shrinks(OnnxRuntime.run)
    case "link":  # between the check and the first byte
        params.check_unchanged = shrinks(lambda array: None)

try:
    farrier.compile(sys.argv[1], threads=1)
except farrier.FarrierError as error:
    print(error)
"""


@pytest.mark.parametrize("stage", ["reference", "link"])
def test_a_file_that_shrinks_ends_no_process(folder, stage):
    command = [sys.executable, "-c", _SHRINKS, str(folder / "m.onnx"), stage]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "m.onnx.data had 16384 bytes and has 0, changed while it was read" in done.stdout


_SHRUNK = """
import os, sys, farrier
from farrier.frontends.onnx.model.file import Model

model = Model.of_path(sys.argv[1])
if sys.argv[2] == "compile":
    model.check_complete()
os.truncate(sys.argv[1], 0)
try:
    model.check_complete() if sys.argv[2] == "scan" else farrier.compile(model, threads=1)
except farrier.FarrierError as error:
    print(error)
"""


@pytest.mark.parametrize("stage", ["scan", "compile"])
def test_a_message_that_shrinks_before_it_is_read_ends_no_process(folder, stage):
    command = [sys.executable, "-c", _SHRUNK, str(folder / "m.onnx"), stage]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"m.onnx had \d+ bytes and has 0, changed while it was read", done.stdout)


_LIMITED = """
import resource, sys, farrier
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import Model

soft, hard = 64, int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
model = Model.of_path(sys.argv[1])
try:
    import_model(model)
    print(len(model.files), "files")
except farrier.FarrierError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("limit", "said"), [(512, "101 files"), (64, r"cannot (map|read) .*\n.*ulimit -n")]
)
def test_a_model_may_have_a_file_for_each_tensor(tmp_path, limit, said):
    tensors = [numpy_helper.from_array(np.float32([n, n]), f"w{n}") for n in range(100)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    node = helper.make_node("Sum", ["x", *(tensor.name for tensor in tensors)], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    how = {"save_as_external_data": True, "all_tensors_to_one_file": False, "size_threshold": 0}
    onnx.save(model, tmp_path / "m.onnx", **how)
    command = [sys.executable, "-c", _LIMITED, str(tmp_path / "m.onnx"), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(said, done.stdout), done.stdout


def test_one_message_ends_at_two_gigabytes():
    class Large:
        def SerializeToString(self):  # noqa: N802
            # Protobuf raises this for a large model.
            raise EncodeError("Failed to serialize proto")

    with pytest.raises(InvalidModelError, match="save_as_external_data=True") as caught:
        farrier.compile(Large())
    assert isinstance(caught.value, FarrierError)


def test_what_a_model_consists_of_is_found_without_onnx(folder):
    script = (
        "import sys; from farrier.frontends.onnx.model.file import Model; "
        f"print(Model.of_path({str(folder / 'm.onnx')!r}).files); "
        "assert not {'onnx', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "('m.onnx.data', PosixPath(" in done.stdout


@given(st.lists(st.sampled_from(["a", "b/c", "größe", "x" * 70_000]), max_size=4), st.data())
def test_the_scan_finds_what_onnx_does(locations, data):
    tensors = []
    for number, location in enumerate(locations):
        tensor = numpy_helper.from_array(np.zeros(3, np.float32), f"t{number}")
        if data.draw(st.booleans()):
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="offset", value="0")
        tensor.external_data.add(key="location", value=location)
        tensors.append(tensor)
    inner = helper.make_graph([], "inner", [], [], tensors[1:2])
    node = helper.make_node("Constant", [], ["c"], value=tensors[0]) if tensors else None
    nodes = [node, helper.make_node("If", ["b"], [], then_branch=inner)] if node else []
    graph = helper.make_graph(nodes, "location", [], [], tensors[2:])
    proto = helper.make_model(graph)
    expected = {
        entry.value
        for tensor in tensors
        if tensor.data_location == TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    assert set(Model.of_bytes(proto.SerializeToString()).locations) == expected


def test_a_compilation_leaves_nothing_of_the_model_open(folder):
    def compiled():
        model = Model.of_path(folder / "m.onnx")
        farrier.compile(model, verify=False)
        return weakref.ref(model)

    def opened():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text()

    first = compiled()
    before, maps = opened()
    assert first() is None
    assert str(folder) not in maps
    second = compiled()
    assert opened()[0] == before
    assert second() is None
