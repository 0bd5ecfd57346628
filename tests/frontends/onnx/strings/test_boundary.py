"""Strings as inputs and outputs of models."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from onnx import helper

import farrier
from farrier.errors import InputMismatchError, InvalidModelError, UsageError
from farrier.frontends.onnx.importer import import_model
from farrier.ir.strings import codes_of, fitted, strings_of
from farrier.onnx_backend import backend as onnx_backend
from tests.frontends.onnx.strings.conftest import STRING, strings_model, words

node = helper.make_node


@given(
    hnp.arrays(
        object, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), elements=words
    )
)
def test_there_and_back(array):
    for given_as in (array, array.astype(np.str_), np.array(array.astype(">U12"), order="F")):
        codes = codes_of(given_as)
        assert codes.dtype == np.uint32
        assert codes.shape[:-1] == array.shape
        assert codes.shape[-1] >= 1
        assert strings_of(codes).tolist() == array.tolist()
        assert strings_of(fitted(codes, 40)).tolist() == array.tolist()


def test_bytes_are_utf8():
    assert strings_of(codes_of(np.array(["é".encode(), b"a"], object))).tolist() == ["é", "a"]
    assert strings_of(codes_of(np.array(["é".encode(), b"a"]))).tolist() == ["é", "a"]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array(["a\0b"]), "NUL"),
        (np.array(["a\0"], object), "NUL"),
        (np.array([b"\xff"], object), "codec"),
        (np.array(["a", 1.5], object), "1.5, which is no string"),
        (np.array([1.5]), "float64, not strings"),
        (np.array([0x110000], np.uint32).view("U1"), "no code point"),
    ],
)
def test_refused(array, message):
    with pytest.raises(ValueError, match=message):
        codes_of(array)


def test_longer_than_fits():
    with pytest.raises(ValueError, match="more than 2 characters"):
        fitted(codes_of(["abc"]), 2)


@pytest.fixture(scope="module")
def reversed_():
    """Strings of a width in a range, turned around."""
    return strings_model([node("Slice", ["x", "s", "e", "a", "t"], ["y"])], {"x": (STRING, ["n"])},
                         ["y"], {"s": [-1], "e": [-99], "a": [0], "t": [-1]})  # fmt: skip


def test_a_session(reversed_):
    artifact = farrier.compile(reversed_, shapes={"x": (3, "width:1..20")}, threads=1)
    (x,), (y,) = artifact.manifest.inputs, artifact.manifest.outputs
    assert (x.dtype, y.dtype, x.shape) == ("string", "string", (3, "s0"))
    assert artifact.run({"x": ["a", b"bc", "déf"]})["y"].tolist() == ["déf", "bc", "a"]
    assert artifact.run({"x": ["", "", ""]})["y"].tolist() == ["", "", ""]
    for bad, message in (
        (["a", "b", "c" * 21], "width is 1 to 20"),
        (["a", "b", "c\0d"], "NUL"),
        ([1, 2, 3], "takes strings"),
        (["a", "b"], "takes"),
    ):
        with pytest.raises(InputMismatchError, match=message):
            artifact.run({"x": bad})


def test_a_fixed_width(reversed_):
    artifact = farrier.compile(reversed_, shapes={"x": (2, 4)}, threads=1, verify=False)
    assert artifact.run({"x": np.array(["ab", "c"], "U9")})["y"].tolist() == ["c", "ab"]
    with pytest.raises(InputMismatchError, match="more than 4 characters"):
        artifact.run({"x": ["abcde", ""]})


def test_a_hot_size(reversed_):
    hot = [{"x.width": 8, "n": 2}]
    artifact = farrier.compile(reversed_, shapes={"x": ("n",)}, hot=hot, threads=1, verify=False)
    for x in (["é", "a" * 8], ["b", "a" * 9], ["abc"]):
        assert artifact.run({"x": x})["y"].tolist() == x[::-1]


def test_shapes(reversed_):
    (width,) = import_model(reversed_, {"x": (3,)}).dims
    assert (width.name, width.typical) == ("x.width", 16)
    assert import_model(reversed_, {"x": ("n", "w:1..8")}).dims[1].high == 8
    for shape, message in (((3, 0), "width, 1 at least"), ((3, 4, 5), "rank 3, not 1")):
        with pytest.raises(UsageError, match=message):
            import_model(reversed_, {"x": shape})


def test_no_strings_at_all(reversed_):
    nodes = [node("StringSplit", ["x"], ["y", "n"]), node("StringConcat", ["x", "x"], ["z"])]
    model = strings_model(nodes, {"x": (STRING, [0, 2])}, ["y", "n", "z"])
    y, n, z = onnx_backend.prepare(onnx.load_from_string(model)).run([np.empty((0, 2), object)])
    assert (y.shape, n.shape, z.shape) == ((0, 2, 0), (0, 2), (0, 2))


@pytest.mark.long
def test_a_constant_that_is_too_large():
    model = strings_model(
        [node("Identity", ["c"], ["y"])], {}, ["y"], {"c": ["x" * 70000] + [""] * 9000}
    )
    with pytest.raises(InvalidModelError, match="too long a string"):
        import_model(model)


def test_a_constant_that_is_no_text():
    model = strings_model([node("Identity", ["c"], ["y"])], {}, ["y"], {"c": ["abc"]})
    with pytest.raises(InvalidModelError, match="codec"):
        import_model(model.replace(b"abc", b"a\xffc"))
