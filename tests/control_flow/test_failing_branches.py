"""Branches that cannot be compiled: a run that takes one ends, and others know nothing of it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import farrier
from farrier import progress
from farrier.artifact.manifest import Manifest
from farrier.errors import (
    InputMismatchError,
    InvalidModelError,
    UnsupportedOperatorError,
    VerificationWarning,
)
from farrier.frontends.onnx.importer import import_model
from farrier.ir.constants import ConstantFiles, StoredConstants
from farrier.ir.control import failures
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ops import run_graph
from farrier.ops.verify import verify
from farrier.options import CompileOptions
from farrier.packaging.draws import random_inputs, runnable_inputs
from farrier.passes import Settings, optimize
from farrier.pipeline import compile_model
from farrier.targets import parse_target
from tests.control_flow.test_models import graph, info, model, node, normal

FLOAT, INT64, BOOL, STRING = (
    getattr(TensorProto, name) for name in ("FLOAT", "INT64", "BOOL", "STRING")
)
FITS = graph([node("MatMul", ["x", "fitting"], ["a"])], outputs=[info("a")])
MISFIT = graph([node("MatMul", ["x", "other"], ["b"], name="product")], outputs=[info("b")])
WEIGHTS = {"fitting": normal(3, 4), "other": normal(5, 4)}
X = {"x": normal(2, 3)}


def chosen(then, otherwise, condition="c", outputs=("y",), extra=(), inputs=(), constants=None):
    """A model of one If on `x` f32[2, 3]."""
    branches = {"then_branch": then, "else_branch": otherwise}
    choice = node("If", [condition], list(outputs), name="choice", **branches)
    return model(
        [choice, *extra],
        [info("x", FLOAT, [2, 3]), *([info("c", BOOL, [])] if condition == "c" else []), *inputs],
        [info(name) for name in outputs],
        WEIGHTS | (constants or {}),
    )


def condition(value):
    return {"c": np.array(value)}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("good", [True, False])
def test_a_run_that_takes_it_ends_and_the_next_one_does_not(threads, good):
    branches = (FITS, MISFIT) if good else (MISFIT, FITS)
    artifact = farrier.compile(chosen(*branches), threads=threads, verify=False)
    assert Manifest.from_json(artifact.manifest.to_json()) == artifact.manifest
    for _ in range(2):
        y = artifact.run(X | condition(good))["y"]
        np.testing.assert_allclose(y, X["x"] @ WEIGHTS["fitting"], rtol=1e-5, atol=1e-5)
        with pytest.raises(
            InputMismatchError,
            match=r"'choice' of model .*'product' \(MatMul\): .*\(2, 3\).*\(5, 4\)",
        ):
            artifact.run(X | condition(not good))


def test_both_branches_are_an_error_of_the_model():
    with pytest.raises(InvalidModelError, match=r"'product' .*; and in the other branch, node 'p"):
        import_model(chosen(MISFIT, MISFIT))


def test_a_known_condition_asks_for_one_branch_alone():
    yes = {"yes": np.array(True)}
    imported = import_model(chosen(FITS, MISFIT, "yes", constants=yes))
    assert [n.op for n in imported.graph.nodes] == ["MatMul"]
    with pytest.raises(InvalidModelError, match=r"'product' \(MatMul\)"):
        import_model(chosen(MISFIT, FITS, "yes", constants=yes))


def test_the_user_hears_of_it_and_verification_takes_the_other_branch():
    """The first of 16 draws of a bool takes the branch that fails."""
    said = []
    options = CompileOptions(threads=1)
    artifact = compile_model(chosen(MISFIT, FITS), options, listener=said.append)
    (warning,) = (event for event in said if isinstance(event, progress.Warned))
    assert "one branch of node 'choice'" in warning.message
    assert "'product' (MatMul)" in warning.message
    assert artifact.report["verification"]["max_error"] < 1e-5


def test_a_model_that_no_draw_takes_the_right_way_says_why():
    text = [node("Greater", ["top", "never"], ["c"]), node("ReduceMax", ["x"], ["top"], keepdims=0)]
    nodes = [*text[::-1], node("If", ["c"], ["y"], then_branch=FITS, else_branch=MISFIT)]
    data = model(
        nodes, [info("x", FLOAT, [2, 3])], [info("y")], WEIGHTS | {"never": np.float32(1e6)}
    )
    with pytest.warns(VerificationWarning, match=r"not verified: none of .*'product' \(MatMul\)"):
        artifact = farrier.compile(data, threads=1)
    assert artifact.report["verification"] is None


def test_a_number_that_decides_is_drawn():
    """As Silero's sampling rate: no random number is 16000."""
    nodes = [
        node("Cast", ["rate"], ["wide"], to=INT64),
        node("Equal", ["wide", "known"], ["c"]),
        node("If", ["c"], ["y"], then_branch=FITS, else_branch=MISFIT),
    ]
    inputs = [info("x", FLOAT, [2, 3]), info("rate", TensorProto.INT32, [])]
    data = model(nodes, inputs, [info("y")], WEIGHTS | {"known": np.array(16000)})
    artifact = farrier.compile(data, threads=1)
    assert artifact.manifest.inputs[1].distinguished_values == (16000,)
    assert Manifest.from_json(artifact.manifest.to_json()) == artifact.manifest
    artifact.run(X | {"rate": np.array(16000, np.int32)})
    with pytest.raises(InputMismatchError, match="not compiled"):
        artifact.run(X | {"rate": np.array(8000, np.int32)})


def test_inputs_to_time_it_with_take_the_branch_that_runs():
    """Drawn for a bench: the first ones, with 16000, would end the run."""
    nodes = [
        node("Equal", ["rate", "known"], ["c"]),
        node("If", ["c"], ["y"], then_branch=MISFIT, else_branch=FITS),
    ]
    inputs = [info("x", FLOAT, [2, 3]), info("rate", INT64, [])]
    data = model(nodes, inputs, [info("y")], WEIGHTS | {"known": np.array(16000)})
    artifact = farrier.compile(data, threads=1)
    assert random_inputs(artifact.manifest.inputs)["rate"] == 16000
    artifact.run(runnable_inputs(artifact))


def test_branches_in_branches_and_captured_values():
    """One way fails in the inner If, and the whole inner If does where neither way is left."""
    inner = node("If", ["d"], ["i"], name="inner", then_branch=MISFIT, else_branch=FITS)
    ways = graph([inner, node("Add", ["i", "h"], ["t"])], outputs=[info("t")])
    none = node("If", ["d"], ["j"], name="none", then_branch=MISFIT, else_branch=MISFIT)
    lost = graph([none, node("Add", ["j", "h"], ["u"])], outputs=[info("u")])
    data = chosen(ways, lost, inputs=[info("d", BOOL, []), info("h", FLOAT, [2, 4])])
    artifact = farrier.compile(data, threads=1, verify=False)
    h = normal(2, 4)
    y = artifact.run(X | {"h": h, "d": np.array(False)} | condition(True))["y"]
    np.testing.assert_allclose(y, X["x"] @ WEIGHTS["fitting"] + h, rtol=1e-5, atol=1e-5)
    for first, second, name in ((True, True, "inner"), (False, False, "choice")):
        with pytest.raises(InputMismatchError, match=f"lead node '{name}'"):
            artifact.run(X | {"h": h, "d": np.array(second)} | condition(first))


def test_a_branch_within_a_loop():
    """The iteration that takes it ends the run."""
    choice = node("If", ["odd"], ["z"], name="choice", then_branch=MISFIT, else_branch=FITS)
    body = graph(
        [
            node("Equal", ["i", "bad"], ["odd"]),
            choice,
            node("Add", ["total", "z"], ["next"]),
            node("Identity", ["go"], ["on"]),
        ],
        [info("i", INT64, []), info("go", BOOL, []), info("total", FLOAT, [2, 4])],
        [info("on", BOOL), info("next")],
    )
    nodes = [node("Loop", ["n", "", "zeros"], ["y"], body=body)]
    inputs = [info("x", FLOAT, [2, 3]), info("n", INT64, []), info("bad", INT64, [])]
    data = model(nodes, inputs, [info("y")], WEIGHTS | {"zeros": np.zeros((2, 4), np.float32)})
    artifact = farrier.compile(data, threads=1, verify=False)

    def run(trips, bad):
        return artifact.run(X | {"n": np.array(trips), "bad": np.array(bad)})["y"]

    np.testing.assert_allclose(run(3, 3), 3 * X["x"] @ WEIGHTS["fitting"], rtol=1e-5, atol=1e-5)
    with pytest.raises(InputMismatchError, match="lead node 'choice'"):
        run(3, 2)
    assert not run(0, 0).any()


def test_outputs_whose_extents_the_data_decides():
    """The counts of the other branch have their bounds here."""
    counts = graph(
        [node("NonZero", ["x"], ["k"]), node("Cast", ["k"], ["a"], to=FLOAT)], outputs=[info("a")]
    )
    artifact = farrier.compile(chosen(counts, MISFIT), threads=1, verify=False)
    x = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
    np.testing.assert_array_equal(
        artifact.run({"x": x} | condition(True))["y"], np.stack(np.nonzero(x))
    )
    with pytest.raises(InputMismatchError, match="'product'"):
        artifact.run({"x": x} | condition(False))


def test_sequences_optionals_and_strings():
    then = graph(
        [
            node("SequenceConstruct", ["x", "x"], ["s"]),
            node("Optional", ["x"], ["o"]),
            node("Identity", ["words"], ["w"]),
        ],
        outputs=[info("s"), info("o"), info("w", STRING)],
    )
    otherwise = graph(
        [
            node("MatMul", ["x", "other"], ["b"], name="product"),
            node("SequenceConstruct", ["b"], ["s2"]),
            node("Optional", ["x"], ["o2"]),
            node("Identity", ["words"], ["w2"]),
        ],
        outputs=[info("s2"), info("o2"), info("w2", STRING)],
    )
    extra = [
        node("SequenceAt", ["s0", "one"], ["part"]),
        node("OptionalGetElement", ["o0"], ["value"]),
        node("Add", ["part", "value"], ["y"]),
        node("Identity", ["w0"], ["z"]),
    ]
    choice = node("If", ["c"], ["s0", "o0", "w0"], then_branch=then, else_branch=otherwise)
    inputs = [info("x", FLOAT, [2, 3]), info("c", BOOL, []), info("words", STRING, [2])]
    outputs = [info("y"), info("z", STRING)]
    data = model([choice, *extra], inputs, outputs, WEIGHTS | {"one": np.array(1)}, opset=18)
    artifact = farrier.compile(data, threads=1, verify=False, shapes={"words": (2, 8)})
    words = np.array(["some", "words"])
    actual = artifact.run(X | condition(True) | {"words": words})
    np.testing.assert_array_equal(actual["y"], 2 * X["x"])
    assert actual["z"].tolist() == ["some", "words"]
    with pytest.raises(InputMismatchError, match="'product'"):
        artifact.run(X | condition(False) | {"words": words})


UNKNOWN = graph(
    [helper.make_node("Frobnicate", ["x"], ["b"], name="f", domain="com.acme")], outputs=[info("b")]
)


def with_domain(data):
    import onnx

    loaded = onnx.load_from_string(data)
    loaded.opset_import.append(helper.make_opsetid("com.acme", 1))
    return loaded.SerializeToString()


def test_an_unknown_operator_in_one_branch_is_an_error_there():
    said = []
    options = CompileOptions(threads=1, verify=False)
    data = with_domain(chosen(FITS, UNKNOWN))
    artifact = compile_model(data, options, listener=said.append)
    (warning,) = (event for event in said if isinstance(event, progress.Warned))
    assert "com.acme:Frobnicate ×1 (first: 'f')" in warning.message
    artifact.run(X | condition(True))
    with pytest.raises(InputMismatchError, match=r"com\.acme:Frobnicate"):
        artifact.run(X | condition(False))


def test_an_unknown_operator_that_every_run_needs_lists_those_in_branches():
    beside = helper.make_node("Grumble", ["x"], ["g"], domain="com.acme")
    data = with_domain(chosen(FITS, UNKNOWN, outputs=("y",), extra=[beside]))
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_model(data)
    assert "com.acme:Grumble" in caught.value.message
    assert "com.acme:Frobnicate" in caught.value.message


def test_what_is_malformed_whatever_the_sizes_is_an_error_of_the_model():
    lost = graph([node("Relu", ["nowhere"], ["b"])], outputs=[info("b")])
    with pytest.raises(InvalidModelError, match="'nowhere', which nothing defines"):
        import_model(chosen(FITS, lost))


@pytest.mark.parametrize("trips", [0, 1])
def test_a_body_that_never_runs_needs_no_types(trips):
    body = graph(
        [
            node("MatMul", ["total", "other"], ["b"], name="product"),
            node("Identity", ["total"], ["next"]),
            node("Identity", ["go"], ["on"]),
        ],
        [info("i", INT64, []), info("go", BOOL, []), info("total", FLOAT, [2, 3])],
        [info("on", BOOL), info("next"), info("b", FLOAT, [2, 4])],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y", "stack"], body=body), node("Neg", ["y"], ["z"])]
    inputs, outputs = [info("x", FLOAT, [2, 3])], [info("z"), info("stack")]
    data = model(nodes, inputs, outputs, WEIGHTS | {"n": np.array(trips)})
    if trips:
        with pytest.raises(InvalidModelError, match=r"'product' \(MatMul\)"):
            import_model(data)
        return
    actual = farrier.compile(data, threads=1, verify=False).run(X)
    np.testing.assert_array_equal(actual["z"], -X["x"])
    assert actual["stack"].shape == (0, 2, 4)


def test_each_hot_size_has_checks_of_its_own():
    """The branch fits one size alone, and is another error at each of the others."""
    fits = graph([node("Relu", ["x"], ["a"])], outputs=[info("a")])
    some = graph([node("Add", ["x", "rows"], ["b"], name="sum")], outputs=[info("b")])
    choice = node("If", ["c"], ["y"], name="choice", then_branch=fits, else_branch=some)
    inputs = [info("x", FLOAT, ["n", 3]), info("c", BOOL, [])]
    rows = normal(4, 3)
    data = model([choice], inputs, [info("y")], {"rows": rows})
    options = CompileOptions(
        threads=1, verify=False, shapes={"x": ("n:2..8", 3)}, hot=({"n": 4}, {"n": 5}, {"n": 6})
    )
    artifact = compile_model(data, options)
    for size, why in ((4, None), (5, r"\(5, 3\)"), (6, r"\(6, 3\)"), (7, "n - 4 is 0")):
        x = normal(size, 3)
        np.testing.assert_array_equal(
            artifact.run({"x": x} | condition(True))["y"], np.maximum(x, 0)
        )
        if why is None:
            np.testing.assert_array_equal(artifact.run({"x": x} | condition(False))["y"], x + rows)
            continue
        with pytest.raises(InputMismatchError, match=f"not compiled: .*node 'sum'.*{why}"):
            artifact.run({"x": x} | condition(False))


def test_the_text_reads_back_and_passes_keep_it(tmp_path):
    imported = import_model(chosen(FITS, MISFIT)).graph
    target = parse_target("host")
    for form in (imported, optimize(imported, Settings(target, 1))):
        (node_,) = failures(form)
        assert node_.origin == "choice"
        verify(form)
        text = print_ir(ConstantFiles(tmp_path).store(form))
        again = parse_ir(text, StoredConstants(tmp_path))
        assert again == form
        assert print_ir(again) == text
        inputs = dict(zip((v.name for v in form.inputs), (X["x"], np.array(False)), strict=True))
        with pytest.raises(ValueError, match="'product'"):
            run_graph(form, inputs)


def test_a_count_that_selects_a_branch_of_another_rank():
    """As KNNImputer's export asks whether any row remains."""
    counts = [
        node("ReduceMax", ["x"], ["top"], axes=[1], keepdims=0),
        node("Greater", ["top", "limit"], ["rows"]),
        node("Compress", ["x", "rows"], ["kept"], axis=0),
        node("Size", ["kept"], ["size"]),
        node("Greater", ["size", "none"], ["c"]),
    ]
    apart = graph([node("Unsqueeze", ["x", "front"], ["a"])], outputs=[info("a")])
    doubled = graph([node("Add", ["x", "x"], ["a"])], outputs=[info("a")])
    same = graph([node("Identity", ["x"], ["b"])], outputs=[info("b")])
    constants = {"front": np.array([0]), "limit": np.float32(5), "none": np.array(0)}
    x = np.array([[1, 2, 3], [4, 0, 1]], "f4")
    for then in (apart, doubled):
        data = chosen(then, same, constants=constants)
        edited = onnx.load_from_string(data)
        del edited.graph.input[1]
        for step in reversed(counts):
            edited.graph.node.insert(0, step)
        artifact = farrier.compile(edited.SerializeToString(), threads=1, verify=False)
        np.testing.assert_array_equal(artifact.run({"x": x})["y"], x)
        if then is doubled:
            np.testing.assert_array_equal(artifact.run({"x": x + 5})["y"], 2 * x + 10)
        else:
            with pytest.raises(InputMismatchError, match=r"'choice' .* f32 of 3 axes"):
                artifact.run({"x": x + 5})
