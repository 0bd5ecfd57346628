"""A backend of another package, `toy/abacus`, which is found by its entry point.

It compiles, measures, tunes and runs a model through the command, in processes of their own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import farrier
from farrier.artifact.code import PROGRAM
from farrier.errors import ArtifactError, UsageError
from farrier.records import FileRecords
from farrier.targets import parse_target
from tests.packages import MAIN, install, run_python

RNG = np.random.default_rng(3)
KERNEL = RNG.standard_normal((2, 3, 1, 1)).astype(np.float32)
WEIGHTS = RNG.standard_normal((8, 6)).astype(np.float32)
X = RNG.standard_normal((1, 3, 4, 8)).astype(np.float32)


def expected():
    hidden = np.maximum(np.einsum("oc,nchw->nohw", KERNEL[:, :, 0, 0], X), 0) @ WEIGHTS
    exponents = np.exp(hidden - hidden.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


@pytest.fixture
def entry_point():
    return "abacus:BACKEND"


@pytest.fixture
def installed(tmp_path, entry_point):
    """The folders by which Python finds the package: its modules, and what `pip` writes of it."""
    points = {"farrier.backends": {"abacus": entry_point}}
    return install(Path(__file__).parent / "toy", tmp_path / "site", "abacus", "1.0", points)


@pytest.fixture
def command(installed, tmp_path):
    """Run `farrier` where the package is installed; give what it prints."""

    def run(*words, code=0):
        return run_python(MAIN, *words, folders=installed, cwd=tmp_path, status=code)

    return run


@pytest.fixture
def model(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 4, 8])],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(KERNEL, "k"), numpy_helper.from_array(WEIGHTS, "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    onnx.save(proto, tmp_path / "small.onnx")
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "small.onnx"


def test_its_machines_are_targets(command):
    assert "made up for the tests" in command("targets")
    assert json.loads(command("targets", "abacus"))["arch"] == "abacus"


def test_it_compiles_measures_and_runs_a_model(command, model, tmp_path):
    said = command(
        "compile", model, "--target", "abacus", "--shape", "x=1,3,4,8", "-o", "a.farrier"
    )
    assert "verified on beads" in said
    command("run", "a.farrier", "--input", "x=x.npy", "-o", "y.npz")
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], expected(), rtol=1e-5)
    artifact = farrier.load(tmp_path / "a.farrier")
    assert artifact.manifest.architecture == "abacus"
    assert {kernel.rule for kernel in artifact.manifest.kernels} == {"beads"}
    [beads] = artifact.code.objects
    assert (beads.path, beads.kind) == ("code/beads.json", "beads")
    library, steps = (json.loads(text) for text in (beads.content, artifact.members[PROGRAM]))
    steps = steps["steps"]
    launched = [step["kernel"] for step in steps if step["step"] == "launch"]
    assert sorted(launched) == sorted(library["kernels"])
    assert [step["step"] for step in steps] == ["allocate", "copy", *["launch"] * 3, "copy", "wait"]
    # This process does not know the package.
    with pytest.raises(
        ArtifactError, match=r"for beads \(abacus\); no installed backend is for abacus"
    ):
        artifact.session()


def test_it_is_tuned_by_its_own_rule(command, model, tmp_path):
    flags = "--shape", "x=1,3,4,8", "--trials", "6", "--records", "records.jsonl"
    command("compile", model, "--target", "abacus", *flags, "-o", "a.farrier")
    records = list(FileRecords(tmp_path / "records.jsonl"))
    assert {(record.rule, record.version) for record in records} == {("beads", 1)}
    assert len({record.decisions for record in records if record.samples_ns}) > 1


@pytest.mark.long
def test_it_keeps_the_contract_of_backends(installed, tmp_path):
    """Its author has the tests from the installed compiler."""
    words = Path(__file__).parent / "toy/contract.py", "-q", "-p", "no:cacheprovider"
    code = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    flags = "--rootdir", tmp_path, "-c", "/dev/null"
    said = run_python(code, *words, *flags, folders=installed, cwd=tmp_path)
    assert re.search(r"\d+ passed", said)
    assert "failed" not in said


def test_what_it_refuses_is_said_in_its_words(command, model, tmp_path):
    description = json.loads(command("targets", "abacus"))
    (tmp_path / "two.json").write_text(json.dumps({**description, "cores": 2}))
    said = command("compile", model, "--target", "two.json", code=2)
    assert "an abacus has one core, not 2" in said


@pytest.mark.parametrize(
    ("entry_point", "why"),
    [
        ("abacus.lost:BACKEND", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("abacus:AbacusBackend", "is a class, no instance of a subclass of Backend"),
    ],
)
def test_a_broken_package_is_named_and_keeps_nobody_from_other_machines(
    command, model, entry_point, why
):
    said = command("targets", code=2)
    assert f"the backend abacus ({entry_point}) of the package abacus {why}" in said
    assert "pip uninstall abacus" in said
    command("compile", model, "--target", "rpi5", "--no-verify")


def test_without_the_package_its_names_are_unknown():
    with pytest.raises(UsageError, match="unknown target 'abacus'"):
        parse_target("abacus")
