"""Damaged and hostile `.pt2` files: each is refused in a sentence with a way out, or read."""

import dataclasses
import io
import json
import random
import re
import time
import warnings
import zipfile

import numpy as np
import pytest

import farrier
from farrier.errors import FarrierError, InvalidModelError, UnsupportedOperatorError, UsageError
from farrier.frontends.onnx.model.file import MAX_BYTES, Model
from farrier.frontends.torch import import_model, inspection
from farrier.frontends.torch.symbols import linear
from tests.frontends.torch.writer import Program, archive, members, meta, saved

MODEL = "models/model.json"
CONFIG = "data/weights/model_weights_config.json"


@pytest.fixture
def program():
    weights = {"w": np.ones((4, 8), np.float32), "b": np.ones(4, np.float32)}
    program = Program({"x": ("f32", ["s0", 8])}, weights, {"s0": (1, 64)})
    program.call("linear", "aten.linear.default", "x", "w", "b")
    program.call("relu", "aten.relu.default", "linear", line="net.py:7")
    return program


def _refused(data, *words, kind=InvalidModelError):
    """Hold that a file is refused in one sentence with these words, and a hint."""
    with pytest.raises(kind) as error:
        import_model(Model.of_bytes(data))
    assert error.value.hint
    assert "\n" not in error.value.message
    for word in words:
        assert word in error.value.message
    problems = inspection(Model.of_bytes(data)).problems
    assert [problem.detail for problem in problems] == [error.value.message]
    return error.value


def _changed(program, member, change):
    """Return the file of a program with a member of JSON changed in place."""
    parts = members(program, ["relu"])
    document = json.loads(parts[member])
    change(document)
    return archive({**parts, member: json.dumps(document)})


def test_a_truncated_archive_is_refused(program):
    data = saved(program, ["relu"])
    for size in (4, 40, len(data) // 2, len(data) - 1):
        assert "copy it again" in _refused(data[:size], "cannot be read").hint


def test_a_member_outside_of_the_file_is_refused(program):
    data = saved(program, ["relu"])
    at = data.rindex(b"PK\x01\x02")  # The last member's entry: its size, and where it is.
    for field in (24, 42):
        damaged = bytearray(data)
        damaged[at + field : at + field + 4] = b"\xff\xff\xff\x7f"
        _refused(bytes(damaged))


def test_compressed_members_are_refused(program):
    data = archive(members(program, ["relu"]), zipfile.ZIP_DEFLATED)
    _refused(data, "compressed, which torch never writes")


def test_pickled_weights_are_not_loaded(program):
    data = _changed(program, CONFIG, lambda d: d["config"]["w"].update(use_pickle=True))
    _refused(data, "'w'", "a pickle, which is not loaded")


def test_infinite_sizes_are_refused(program):
    for member, keys in (
        (MODEL, ("graph_module", "graph", "tensor_values")),
        (CONFIG, ("config",)),
    ):

        def change(document, keys=keys):
            for key in keys:
                document = document[key]
            entry = document["w"].get("tensor_meta", document["w"])
            entry["sizes"][0]["as_int"] = float("inf")

        _refused(_changed(program, member, change), "malformed")


@pytest.mark.parametrize("major", [7, 9, -1])
def test_other_versions_of_the_schema_are_refused(program, major):
    data = _changed(program, MODEL, lambda d: d["schema_version"].update(major=major))
    _refused(data, f"version {major} of the schema", "reads 8")


def test_overlapping_strides_are_refused(program):
    entry = meta("f32", [4, 8], [1, 1])
    data = _changed(program, CONFIG, lambda d: d["config"]["w"].update(tensor_meta=entry))
    assert "clone()" in _refused(data, "'w'", "[1, 1] overlap").hint


def test_weights_shorter_than_their_shape_are_refused(program):
    parts = members(program, ["relu"])
    parts["data/weights/weight_0"] = parts["data/weights/weight_0"][:-4]
    _refused(archive(parts), "'w'", "124 bytes are too few")


def test_a_transposed_weight_is_a_view_of_its_file():
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    program = Program({"x": ("f32", [3])}, {"w": w})
    program.call("relu", "aten.mv.default", "w", "x")
    entry = meta("f32", [4, 3], [1, 4])
    parts = members(program, ["relu"])
    config = json.loads(parts[CONFIG])
    config["config"]["w"]["tensor_meta"] = entry
    parts |= {CONFIG: json.dumps(config), "data/weights/weight_0": w.T.tobytes()}
    x = np.float32([1, 10, 100])
    session = farrier.compile(archive(parts), verify=False, threads=1).session()
    np.testing.assert_array_equal(session.run({"x": x})["output_0"], w @ x)


def test_tied_weights_are_stored_once():
    w = np.arange(64, dtype=np.float32).reshape(8, 8)
    program = Program({"x": ("f32", [2, 8])}, {"encoder": w, "decoder": w})
    program.call("hidden", "aten.mm.default", "x", "encoder")
    program.call("relu", "aten.mm.default", "hidden", "decoder")
    parts = members(program, ["relu"])
    config = json.loads(parts[CONFIG])
    config["config"]["decoder"]["path_name"] = "weight_0"
    parts[CONFIG] = json.dumps(config)
    del parts["data/weights/weight_1"]
    model = Model.of_bytes(archive(parts))
    document = inspection(model)
    assert dataclasses.astuple(document.parameters)[:2] == (1, w.nbytes)
    constants = import_model(model).graph.constants
    assert sum(constant.data.size == w.size for constant in constants) == 1
    x = np.ones((2, 8), np.float32)
    y = farrier.compile(archive(parts), verify=False, threads=1).session().run({"x": x})
    np.testing.assert_array_equal(y["output_0"], x @ w @ w)


@pytest.mark.parametrize("limits", [(None, None), (0, None), (2, 2**63 - 1)])
def test_unbounded_sizes_have_a_range(program, limits):
    program.ranges = {"s0": limits}
    (dim,) = import_model(Model.of_bytes(saved(program, ["relu"]))).dims
    assert (dim.name, dim.low, dim.high >= 1024) == ("s0", 1, True)


def test_impossible_ranges_are_refused(program):
    for limits in ((9, 3), (2**40, None)):
        program.ranges = {"s0": limits}
        _refused(saved(program, ["relu"]), "s0", kind=UsageError)


@pytest.mark.parametrize(
    "text",
    ["", "Symbol('s0'", "__import__('os')(1)", "1if 1else 2", "'\\d'", "Symbol('\\d')", "9" * 9999],
)
def test_hostile_formulas_are_refused_without_a_warning(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidModelError, match="not a formula"):
            linear(text)


def test_formulas_are_sums():
    text = "Add(Integer(3), Mul(Integer(2), Symbol('s1', positive=True, integer=True)))"
    assert linear(text) == linear("Add(Mul(Symbol('s1'), 2), 1, 2)")
    assert linear("FloorDiv(Symbol('s1'), Integer(2))") is None
    assert linear("Max(Integer(1), Symbol('s1'))") is None


def test_all_unknown_operators_are_listed_with_their_lines(program):
    program.call("a", "my_ops.twice.default", "relu", line="net.py:12")
    program.call("b", "aten.frobnicate.default", "a", line="net.py:15")
    data = saved(program, ["b"])
    words = ("2 operators", "my_ops.twice.default", "net.py:12", "aten.frobnicate", "net.py:15")
    _refused(data, *words, kind=UnsupportedOperatorError)
    missing = {use.op for use in inspection(Model.of_bytes(data)).operators if not use.supported}
    assert missing == {"my_ops.twice.default", "aten.frobnicate.default"}


def _npz():
    file = io.BytesIO()
    np.savez(file, a=np.ones(3))
    return file.getvalue()


def _zip(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        for name in names:
            written.writestr(name, "")
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "kind", "command"),
    [
        (_npz(), "numpy arrays (.npz)", "torch.export.save"),
        (_zip("manifest.json", "model.so"), "not a .pt2 file", "torch.export.save"),
        (_zip("META-INF/MANIFEST.MF", "A.class"), "Java classes (.jar)", "torch.export.save"),
        (_zip("m/data.pkl", "m/data/0"), "a checkpoint of torch (.pt, .pth)", "load_state_dict"),
        (_zip("m/code/a.py", "m/data.pkl"), "a TorchScript module", "torch.export.save"),
        (_zip("config.json", "model.weights.h5"), "a Keras model", "farrier convert"),
        (_zip("m/saved_model.pb", "m/fingerprint.pb"), "a SavedModel", "farrier convert"),
        (_zip("m.mlpackage/Manifest.json"), "a Core ML package", "export the model"),
        (_zip("m.onnx"), "a model in a zip archive", "unzip"),
    ],
)
def test_zips_that_are_not_programs_are_refused_with_a_command(data, kind, command):
    assert command in _refused(data, kind).hint


def test_an_artifact_is_not_taken_for_a_model(program, tmp_path):
    path = tmp_path / "m.farrier"
    farrier.compile(saved(program, ["relu"]), verify=False, threads=1).save(path)
    with pytest.raises(FarrierError) as error:
        farrier.compile(path)
    assert error.value.hint


def test_a_program_may_have_more_than_2_gib(tmp_path):
    path = tmp_path / "large.pt2"
    with path.open("wb") as file:  # A sparse file: a zip's directory is at its end.
        file.write(b"PK\x03\x04")
        file.truncate(MAX_BYTES + 2)
    with pytest.raises(InvalidModelError, match=r"\.pt2 archive cannot be read"):
        import_model(Model.of_path(path))
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 2)
    with pytest.raises(InvalidModelError, match="no ONNX message"):
        Model.of_path(path)


_ODD = [None, True, -1, 0, 2**63, 1e400, "",
        "s0", "x", [], {}, [[]], {"as_int": -1}, {"as_none": 1}]  # fmt: skip


def _damaged_bytes(data, rng):
    array = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        # The directory, with the places of all members, is at the end.
        start = rng.choice([0, len(array) - 700])
        array[rng.randrange(start, len(array))] = rng.randrange(256)
    return bytes(array[: rng.randrange(len(array))] if rng.random() < 0.1 else array)


def _damaged_document(parts, rng):
    """Return a file in which one value of its JSON is another."""
    member = rng.choice([MODEL, MODEL, MODEL, CONFIG])
    document = json.loads(parts[member])
    places = []
    stack = [document]
    while stack:
        node = stack.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        places += [(node, key) for key in keys]
        stack += [node[key] for key in keys if isinstance(node[key], dict | list)]
    node, key = rng.choice(places)
    if rng.random() < 0.3:
        del node[key]
    else:
        node[key] = rng.choice(_ODD)
    return archive({**parts, member: json.dumps(document)})


def test_damaged_files_are_refused_or_read(program):
    program.call("view", "aten.view.default", "relu", [-1, 2])
    program.call("end", "aten.slice.Tensor", "view", 0, 1, 4)
    parts = members(program, ["end"])
    data = archive(parts)
    messages = []
    for seed in range(150):
        rng = random.Random(seed)
        damaged = _damaged_document(parts, rng) if seed % 3 else _damaged_bytes(data, rng)
        begun = time.process_time()
        try:
            import_model(Model.of_bytes(damaged))
        except FarrierError as error:
            messages.append(error.message)
        except Exception as error:
            raise AssertionError(f"damaged file {seed}") from error
        assert time.process_time() - begun < 10, seed
    assert 50 < len(messages) < 150
    assert not re.search("Traceback|0x[0-9a-f]{8}", "".join(messages))
