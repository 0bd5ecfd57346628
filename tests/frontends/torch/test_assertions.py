"""Assertions of a program: checked by a run, refused by the import, or named in a notice."""

import numpy as np
import pytest

import farrier
from farrier.errors import InputMismatchError
from farrier.frontends.onnx.model.file import Model
from farrier.frontends.torch import import_model
from tests.frontends.torch.writer import Program, Text, saved

NUMBER = {"as_sym_int": {"as_name": "n"}}
TRUTH = {"as_sym_bool": {"as_name": "truth"}}


def _expression(text):
    return Text(f"Runtime assertion failed for expression {text} on node 'truth'")


def _counting(*assertions):
    """Return a program that checks the number `k`, and returns a vector of `k` zeros."""
    program = Program({"k": ("i64", []), "x": ("f32", ["s0"])}, ranges={"s0": (0, None)})
    program.call("n", "aten.item.default", "k")
    program.call("size", "aten.sym_size.int", "x", 0)
    for op, x, y, text in assertions:
        program.call("truth", f"_operator.{op}", x, y, line="net.py:4")
        program.call("", "aten._assert_scalar.default", TRUTH, _expression(text), line="net.py:4")
    program.call("out", "aten.zeros.default", {"as_sym_ints": [{"as_name": "n"}]})
    return saved(program, ["out"])


SIZE = {"as_sym_int": {"as_name": "size"}}


def test_a_run_checks_what_the_module_asserts():
    data = _counting(
        ("ge", NUMBER, 1, "u0 >= 1"),
        ("lt", NUMBER, 6, "u0 < 6"),
        ("ne", NUMBER, 3, "Ne(u0, 3)"),
        ("le", NUMBER, SIZE, "u0 <= s0"),
    )
    session = farrier.compile(data, verify=False, threads=1).session()
    x = np.zeros(4, np.float32)
    for number in (1, 2, 4):
        (out,) = session.run({"k": np.int64(number), "x": x}).values()
        assert out.shape == (number,)
    for number, text in ((0, "u0 >= 1"), (6, "u0 < 6"), (3, r"Ne\(u0, 3\)"), (5, "u0 <= s0")):
        with pytest.raises(InputMismatchError, match=f"the module asserts {text}"):
            session.run({"k": np.int64(number), "x": x})


def test_a_run_checks_sizes_of_inputs_and_tensors():
    program = Program({"x": ("f32", ["s0"]), "ok": ("bool", [])}, ranges={"s0": (0, None)})
    program.call("size", "aten.sym_size.int", "x", 0)
    program.call("truth", "_operator.le", SIZE, 3)
    program.call("", "aten._assert_scalar.default", TRUTH, _expression("s0 <= 3"))
    program.call("", "aten._assert_async.msg", "ok", Text("not ok"))
    program.call("out", "aten.relu.default", "x")
    session = farrier.compile(saved(program, ["out"]), verify=False, threads=1).session()
    session.run({"x": np.zeros(3, np.float32), "ok": np.True_})
    with pytest.raises(InputMismatchError, match="the module asserts s0 <= 3"):
        session.run({"x": np.zeros(4, np.float32), "ok": np.True_})
    with pytest.raises(InputMismatchError, match="the module asserts not ok"):
        session.run({"x": np.zeros(3, np.float32), "ok": np.False_})


def test_an_assertion_that_never_holds_is_named():
    data = _counting(("gt", SIZE, 8, "s0 > 8"))
    (notice,) = import_model(Model.of_bytes(data), {"x": (8,)}).notices
    assert "asserts s0 > 8, which no call fulfils, at net.py:4" in notice
    assert import_model(Model.of_bytes(data), {"x": (9,)}).notices == ()


def test_an_assertion_that_no_check_expresses_is_named():
    program = Program({"x": ("f32", ["s0"])}, ranges={"s0": (0, None)})
    program.call("size", "aten.sym_size.int", "x", 0)
    for name, limit in (("few", 3), ("many", 9)):
        program.call(name, "_operator.eq", SIZE, limit)
    pair = ({"as_sym_bool": {"as_name": name}} for name in ("few", "many"))
    program.call("truth", "_operator.or_", *pair)
    program.call("", "aten._assert_scalar.default", TRUTH, _expression("s0 is 3 or 9"))
    program.call("out", "aten.relu.default", "x")
    with pytest.warns(UserWarning, match="the assertion 's0 is 3 or 9' is not checked"):
        artifact = farrier.compile(saved(program, ["out"]), verify=False, threads=1)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(artifact.session().run({"x": x})["output_0"], x)


@pytest.mark.parametrize(
    ("limits", "shapes", "warns"),
    [((2, None), {}, True), ((0, None), {}, False), ((2, None), {"x": ("s0:2..9",)}, False)],
)
def test_a_least_size_of_2_that_is_taken_as_1_is_named(limits, shapes, warns):
    program = Program({"x": ("f32", ["s0"])}, ranges={"s0": limits})
    program.call("out", "aten.relu.default", "x")
    notices = import_model(Model.of_bytes(saved(program, ["out"])), shapes).notices
    assert ["for s0 of 2 or more" in notice for notice in notices] == [True] * warns
