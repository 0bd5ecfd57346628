"""Tests of the listing of an artifact: it shows the artifact's own code."""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.artifact.schedules import Schedules, to_json
from farrier.errors import ArtifactError
from farrier.frontends.onnx.model.file import Model
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.listing import archive
from farrier.listing.listing import Listing, list_kernels
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.runtime.artifact import SCHEDULES, load

FLOAT, node = TensorProto.FLOAT, helper.make_node


def info(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def _model(batch: int | str = 3, sizes: tuple[int | str, ...] = (29, 31)) -> Model:
    """Two convolutions, the second by Winograd where that pays, their sum, and a product."""
    random = np.random.default_rng(7)
    weights = {
        "w1": random.standard_normal((24, 7, 3, 3)),
        "w2": random.standard_normal((24, 24, 3, 3)),
        "w3": random.standard_normal((24, 5)),
    }
    graph = helper.make_graph(
        [
            node("Conv", ["x", "w1"], ["a"], "c1", pads=[1, 1, 1, 1]),
            node("Relu", ["a"], ["b"], "r1"),
            node("Conv", ["b", "w2"], ["c"], "c2", pads=[1, 1, 1, 1]),
            node("Add", ["b", "c"], ["d"], "sum"),
            node("GlobalAveragePool", ["d"], ["e"], "pool"),
            node("Flatten", ["e"], ["f"], "flat"),
            node("MatMul", ["f", "w3"], ["y"], "product"),
        ],
        "net",
        [info("x", [batch, 7, *sizes])],
        [info("y", None)],
        [numpy_helper.from_array(array.astype("f4"), name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return Model.of_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())


def read(tmp_path, listing: Listing):
    path = tmp_path / "l.listing"
    with path.open("wb") as file:
        listing.write(file)
    document = archive.read_listing(path)
    return document, [archive.read_texts(path, entry["id"]) for entry in document["kernels"]]


@pytest.mark.long
@pytest.mark.parametrize("target", ["host", "x86-64-v3", "rpi4"])
@pytest.mark.parametrize("batch", [3, "n"])
def test_the_kernels_are_the_artifact_s_own(tmp_path, target, batch):
    model, options = _model(batch), CompileOptions(target=target, verify=False)
    artifact = load(compile_model(model, options).save(tmp_path / "m.farrier"))
    document, texts = read(tmp_path, list_kernels(model, options, artifact))
    assert document["is_same"] is True
    kernels = document["kernels"]
    assert {entry["task"] for entry in kernels} == {
        entry.task for entry in artifact.manifest.kernels
    }
    assert sum(entry["share"] for entry in kernels) == pytest.approx(1.0)
    assert sum(entry["calls"] for entry in kernels) == len(artifact.calls)
    for kernel, text in zip(kernels, texts, strict=True):
        assert f"define i32 @{kernel['symbol']}(" in text["llvm"]
        assert f"{kernel['symbol']}:" in text["assembly"]
        assert print_ir(parse_ir(text["loops"])) == text["loops"]
    assembly = "".join(text["assembly"] for text in texts)
    assert ("fmla" in assembly, "ymm" in assembly) == (target == "rpi4", target != "rpi4")
    conv = max(kernels, key=lambda entry: entry["flops"])
    products = 2 * 29 * 31 * 24 * 24 * 9 * (3 if batch == 3 else 1)
    assert 0.2 * products < conv["flops"] < 1.2 * products  # Winograd's are fewer
    roofline = conv["roofline"]
    assert roofline["intensity"] == pytest.approx(conv["flops"] / conv["bytes"])
    # Not all arithmetic is multiply-adds, and times are predicted.
    assert 0 < roofline["achieved_gflops"] <= 1.5 * roofline["peak_gflops"]


@pytest.mark.long
def test_code_beside_that_at_hot_sizes_is_the_artifact_s_own(tmp_path):
    model, options = _model("n", ("h", "w")), CompileOptions(verify=False)
    artifact = load(compile_model(model, options).save(tmp_path / "m.farrier"))
    document, _ = read(tmp_path, list_kernels(model, options, artifact))
    assert document["is_same"] is True
    assert {entry["task"] for entry in document["kernels"]} >= artifact.schedules[
        1
    ].decisions.keys()


@pytest.mark.long
def test_what_tuning_has_chosen_is_listed(tmp_path):
    model, options = _model("n"), CompileOptions(target="host", trials=16, verify=False, seed=3)
    artifact = load(compile_model(model, options).save(tmp_path / "m.farrier"))
    document, _ = read(tmp_path, list_kernels(model, options, artifact))
    assert document["is_same"] is True
    sources = {entry.task: entry.source for entry in artifact.manifest.kernels}
    assert {entry["task"]: entry["source"] for entry in document["kernels"]} == sources
    shown = artifact.schedules[1].decisions
    for kernel in document["kernels"]:
        if kernel["calls"]:
            assert kernel["decisions"] == shown[kernel["task"]]
    measured = [entry for entry in document["kernels"] if entry["source"] == "tuned"]
    assert all(entry["us"] == entry["measured_us"] for entry in measured)


@pytest.mark.long
def test_other_schedules_are_told_apart(tmp_path):
    """The code is made from what the artifact says, and held to its library."""
    model, options = _model(), CompileOptions(target="host", verify=False)
    artifact = load(compile_model(model, options).save(tmp_path / "m.farrier"))
    [own] = artifact.schedules
    changed = dataclasses.replace(
        own, decisions={key: dict(decisions) for key, decisions in own.decisions.items()}
    )
    decisions = next(
        decisions for decisions in changed.decisions.values() if decisions.get("parallel") in (0, 1)
    )
    decisions["parallel"] = 1 - decisions["parallel"]
    artifact.members[SCHEDULES] = to_json([changed]).encode()
    document, _ = read(tmp_path, list_kernels(model, options, artifact))
    assert document["is_same"] is False
    artifact.members[SCHEDULES] = to_json([Schedules({}, {})]).encode()
    list_kernels(model, options, artifact)
    for text in ("[]", "{}", "[1]", '[{"algorithms": {}, "decisions": {"a": {"b": "c"}}}]'):
        artifact.members[SCHEDULES] = text.encode()
        with pytest.raises(ArtifactError):
            list_kernels(model, options, artifact)
    del artifact.members[SCHEDULES]
    with pytest.raises(ArtifactError, match="does not list its schedules"):
        list_kernels(model, options, artifact)
    with pytest.raises(ArtifactError, match="was made for"):
        list_kernels(model, CompileOptions(target="rpi4"), artifact)


def test_the_graph_of_calls_leads_from_inputs_to_outputs(tmp_path):
    model, options = _model("n"), CompileOptions(target="host", verify=False)
    artifact = load(compile_model(model, options).save(tmp_path / "m.farrier"))
    document, _ = read(tmp_path, list_kernels(model, options, artifact))
    nodes, edges = document["graph"]["nodes"], document["graph"]["edges"]
    assert [node["id"] for node in nodes] == list(range(len(nodes)))
    assert (nodes[0]["op"], nodes[0]["name"], nodes[0]["shape"]) == ("input", "x", [1, 7, 29, 31])
    assert (nodes[-1]["op"], nodes[-1]["name"], nodes[-1]["dtype"]) == ("output", "y", "f32")
    calls = nodes[1:-1]
    assert len(calls) == len(artifact.calls)
    assert all(document["kernels"][node["kernel"]]["calls"] for node in calls)
    reached = {0}
    for source, sink in edges:  # The edges are in program order.
        assert source < sink
        if source in reached:
            reached.add(sink)
    assert reached == set(range(len(nodes)))
    assert document["sizes"] == {"n": 1}


def test_a_loop_carries_its_buffers(tmp_path):
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["more"]),
            node("MatMul", ["at", "w"], ["next"]),
        ],
        "body",
        [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("at", [5, 5])],
        [info("more", [], TensorProto.BOOL), info("next", [5, 5])],
    )
    weights = np.random.default_rng(1).standard_normal((5, 5)).astype("f4")
    graph = helper.make_graph(
        [node("Loop", ["n", "", "x"], ["y"], "loop", body=body), node("Softmax", ["y"], ["z"])],
        "net",
        [info("x", [5, 5]), info("n", [], TensorProto.INT64)],
        [info("z", [5, 5])],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = Model.of_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    options = CompileOptions(target="host", verify=False)
    artifact = load(compile_model(model, options).save(tmp_path / "m.farrier"))
    document, _ = read(tmp_path, list_kernels(model, options, artifact))
    assert document["is_same"] is True
    nodes = document["graph"]["nodes"]
    ends = {entry["op"].partition("_")[0]: entry["id"] for entry in nodes}
    edges = {tuple(edge) for edge in document["graph"]["edges"]}
    (product,) = (entry["id"] for entry in nodes if "matmul" in entry["op"])
    (softmax,) = (entry["id"] for entry in nodes if "softmax" in entry["op"])
    assert {(product, softmax), (softmax, ends["output"])} <= edges
    assert (0, product) in edges


class TestArchive:
    def made(self, tmp_path, texts, listing=None):
        path = tmp_path / "l"
        with path.open("wb") as file:
            archive.write(file, listing or {"kernels": []}, map(archive.packed, texts))
        return path

    def test_texts_are_read_one_by_one(self, tmp_path):
        path = self.made(tmp_path, [{"llvm": "a\u202eb"}, {}, {"llvm": "c" * 1000}])
        assert archive.read_listing(path) == {"kernels": []}
        assert archive.read_texts(path, 0) == {"llvm": "a\u202eb"}
        assert archive.read_texts(path, 2) == {"llvm": "c" * 1000}
        for other in (3, -1):
            with pytest.raises(LookupError):
                archive.read_texts(path, other)

    def test_what_is_too_long_is_cut_and_what_has_no_room_left_out(self, tmp_path, monkeypatch):
        path = self.made(tmp_path, [{"llvm": "c" * (archive.LONGEST_TEXT + 5)}])
        text = archive.read_texts(path, 0)["llvm"]
        assert f"the whole has {archive.LONGEST_TEXT + 5} characters" in text
        monkeypatch.setattr(archive, "MOST_BYTES", archive.MOST_INDEX + 2000)
        noise = [{"llvm": np.random.default_rng(at).bytes(400).hex()} for at in range(4)]
        path = self.made(tmp_path, noise)
        assert path.stat().st_size < archive.MOST_BYTES
        assert archive.read_texts(path, 0) == noise[0]
        assert archive.read_texts(path, 3) is None

    @pytest.mark.parametrize(
        "index",
        [
            {"texts": [[0, 1 << 40]]},
            {"texts": [[-1, 5]]},
            {"texts": [[1 << 62, 5]]},
            {"texts": [["0", 5]]},
            {"texts": {"0": [0, 5]}},
            {"texts": [[0, 10]]},
            {},
            [],
        ],
    )
    def test_hostile_indexes_are_refused(self, tmp_path, index):
        data = archive.zlib.compress(json.dumps(index).encode())
        path = tmp_path / "l"
        head = b"farrier-listing1" + archive._LENGTH.pack(len(data))
        path.write_bytes(head + data + archive.zlib.compress(b"[1]"))
        with pytest.raises(ArtifactError, match="cannot be read"):
            archive.read_texts(path, 0)

    @pytest.mark.parametrize("most", [archive.MOST_INDEX, archive.MOST_TEXTS])
    def test_what_unpacks_to_too_much_is_refused(self, tmp_path, most):
        bomb = archive.zlib.compress(b" " * (most + 1) + b"{}", 9)
        index = archive.zlib.compress(json.dumps({"texts": [[0, len(bomb)]]}).encode())
        path = tmp_path / "l"
        is_index = most == archive.MOST_INDEX
        first = bomb if is_index else index
        head = b"farrier-listing1" + archive._LENGTH.pack(len(first))
        path.write_bytes(head + first + (b"" if is_index else bomb))
        with pytest.raises(ArtifactError, match="too much"):
            archive.read_texts(path, 0)

    def test_other_files_are_refused(self, tmp_path):
        whole = io.BytesIO()
        archive.write(whole, {}, [])
        path = tmp_path / "l"
        for data in (b"", b"PK\x03\x04" * 10, whole.getvalue()[:-3], whole.getvalue()[:20]):
            path.write_bytes(data)
            with pytest.raises(ArtifactError, match="cannot be read"):
                archive.read_listing(path)
        path.write_bytes(b"farrier-listing1" + archive._LENGTH.pack(1 << 60))
        with pytest.raises(ArtifactError, match="cannot be read"):
            archive.read_listing(path)
