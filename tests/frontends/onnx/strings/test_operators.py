"""Operators on strings as compiled code, against Python's own strings."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import farrier
from farrier.errors import FarrierError, InvalidModelError, UnsupportedOperatorError
from farrier.frontends.onnx.importer import import_model
from tests.frontends.onnx.strings.conftest import STRING, strings_model, tensor, words

node = helper.make_node
lists = st.lists(words, min_size=1, max_size=5)


@pytest.fixture(scope="module")
def compiled():
    """One artifact of all that computes with strings, for any number and width of them."""
    keys = {"keys_strings": ["a", "ß", "", "ab"], "domain": "ai.onnx.ml"}
    nodes = [
        node("StringConcat", ["x", "y"], ["joined"]),
        node("StringConcat", ["x", "sign"], ["signed"]),
        node("Equal", ["x", "y"], ["same"]),
        node("StringSplit", ["x"], ["words", "word_counts"]),
        node("StringSplit", ["x"], ["two_words", "two_counts"], maxsplit=1),
        node("StringSplit", ["x"], ["pieces", "piece_counts"], delimiter="ab"),
        node("StringSplit", ["x"], ["two_pieces", "_"], delimiter="a", maxsplit=1),
        node("RegexFullMatch", ["x"], ["matches"], pattern=r"[aß]*(?:\w+|,.?)|Σ$"),
        node("StringNormalizer", ["x"], ["lower"], case_change_action="LOWER"),
        node("StringNormalizer", ["x"], ["upper"], case_change_action="UPPER"),
        node("StringNormalizer", ["x"], ["kept"], stopwords=["A", "", "é"]),
        node("StringNormalizer", ["x"], ["large"], stopwords=["a", "ß"], is_case_sensitive=1,
             case_change_action="UPPER"),
        node("LabelEncoder", ["x"], ["numbers"], values_int64s=[7, 8, 9, 10], **keys),
        node("LabelEncoder", ["x"], ["names"], values_strings=["one", "", "drei", "4"],
             default_string="?!", **keys),
        node("Where", ["same", "x", "sign"], ["chosen"]),
        node("Unique", ["x"], ["unique", "", "", "counts"]),
    ]  # fmt: skip
    outputs = ["joined", "signed", "same", "words", "word_counts", "two_words", "pieces",
               "two_pieces", "matches", "lower", "upper", "kept", "large", "numbers", "names",
               "chosen", "unique", "counts"]  # fmt: skip
    model = strings_model(
        nodes, {"x": (STRING, ["n"]), "y": (STRING, ["n"])}, outputs, {"sign": "€uro"}
    )
    artifact = farrier.compile(model, threads=2, shapes={"x": ("n:1..64",)}, verify=False)
    return artifact.session()


def padded(pieces):
    widest = max(map(len, pieces))
    return [actual + [""] * (widest - len(actual)) for actual in pieces]


def or_empty(strings):
    return strings or [""]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_python_agrees(compiled, data):
    x = data.draw(lists)
    y = [data.draw(words | st.just(text)) for text in x]
    got = compiled.run({"x": np.array(x, object), "y": np.array(y)})
    numbers = {"a": 7, "ß": 8, "": 9, "ab": 10}
    names = {"a": "one", "ß": "", "": "drei", "ab": "4"}
    items, counts = np.unique(np.array(x, object), return_counts=True)
    expected = {
        "joined": [a + b for a, b in zip(x, y, strict=True)],
        "signed": [a + "€uro" for a in x],
        "same": [a == b for a, b in zip(x, y, strict=True)],
        "words": padded([a.split() for a in x]),
        "word_counts": [len(a.split()) for a in x],
        "two_words": padded([a.split(None, 1) for a in x]),
        "pieces": padded([a.split("ab") for a in x]),
        "two_pieces": padded([a.split("a", 1) for a in x]),
        "lower": [a.lower() for a in x],
        "upper": [a.upper() for a in x],
        "kept": or_empty([a for a in x if a.lower() not in ("a", "", "é")]),
        "large": or_empty([a.upper() for a in x if a not in ("a", "ß")]),
        "numbers": [numbers.get(a, -1) for a in x],
        "names": [names.get(a, "?!") for a in x],
        "chosen": [a if a == b else "€uro" for a, b in zip(x, y, strict=True)],
        "unique": items.tolist(),
        "counts": counts.tolist(),
    }
    for name, values in expected.items():
        assert got[name].tolist() == values, name


def test_every_character_changes_case_as_in_python(compiled):
    x = [chr(code) for code in range(1, 0x20000)] + ["\U000e0020Σ"]
    for chunk in np.array_split(np.array(x), 4):
        many = compiled.manifest.dims[0].high
        text = ["".join(part) for part in np.array_split(chunk, many)]
        got = compiled.run({"x": text, "y": text})
        assert got["lower"].tolist() == [a.lower() for a in text]
        assert got["upper"].tolist() == [a.upper() for a in text]


def run(nodes, feeds, outputs=("y",), constants=None):
    """The outputs of a model compiled for any size of its first axis."""
    kinds = {name: STRING if a.dtype.kind in "UO" else helper.np_dtype_to_tensor_dtype(a.dtype)
             for name, a in feeds.items()}  # fmt: skip
    inputs = {name: (kind, feeds[name].shape) for name, kind in kinds.items()}
    model = strings_model(nodes, inputs, outputs, constants)
    actual = farrier.compile(model, threads=2, verify=False).run(feeds)
    return model, [actual[name] for name in outputs]


KEYS = {
    "strings": (["b", "", "ab", "b"], np.array([["ab", "x"], ["", "b"]])),
    "int64s": ([7, -1, 1 << 40, 0], np.array([-1, 5, 1 << 40, 7, 0])),
    "floats": ([0.5, float("nan"), -0.0], np.array([np.nan, -np.nan, 0.5, 0.0, -0.0, 3], "f4")),
}
VALUES = {"strings": ["one", "", "three", "4"], "int64s": [1, 2, 3, 4], "floats": [1.5, 2, 3, 4]}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("as_tensors", [False, True])
def test_label_encoder(keys, values, as_tensors):
    given_keys, x = KEYS[keys]
    given_values = VALUES[values][: len(given_keys)]
    attrs = {f"keys_{keys}": given_keys, f"values_{values}": given_values}
    default = {"strings": "_Unused", "int64s": -1, "floats": -0.0}[values]
    if as_tensors:
        dtypes = {"strings": object, "int64s": np.int16, "floats": np.float64}
        of_keys = x.dtype if keys != "strings" else object
        attrs = {
            "keys_tensor": tensor(np.array(given_keys, of_keys)),
            "values_tensor": tensor(np.array(given_values, dtypes[values])),
            "default_tensor": tensor(np.array([default], dtypes[values])),
        }
    _, (y,) = run([node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **attrs)], {"x": x})

    def key(value):
        """The value itself, and one for every NaN; 0 and -0 are equal as they are."""
        return "NaN" if value != value else value

    table = {key(k): v for k, v in zip(given_keys, given_values, strict=True)}
    expected = [table.get(key(v), default) for v in x.reshape(-1).tolist()]
    assert y.shape == x.shape
    assert y.reshape(-1).tolist() == expected


def test_label_encoder_of_the_first_version():
    names = ["a", "", "ccc"]
    for x, expected in (
        (np.array(["ccc", "a", "z"]), [2, 0, -1]),
        (np.array([1, 2, 9]), ["", "ccc", "_Unused"]),
    ):
        kind = STRING if x.dtype.kind == "U" else TensorProto.INT64
        label_encoder = node(
            "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", classes_strings=names
        )
        model = onnx.load_from_string(strings_model([label_encoder], {"x": (kind, x.shape)}, ["y"]))
        model.opset_import[1].version = 1
        data = model.SerializeToString()
        assert farrier.compile(data, verify=False).run({"x": x})["y"].tolist() == expected


@pytest.mark.parametrize("shape", [(5,), (1, 5)])
@pytest.mark.parametrize("action", ["LOWER", "UPPER", "NONE"])
@pytest.mark.parametrize("is_case_sensitive", [0, 1])
def test_normalizer_beside_onnxruntime(shape, action, is_case_sensitive):
    normalizer = node(
        "StringNormalizer",
        ["x"],
        ["y"],
        case_change_action=action,
        is_case_sensitive=is_case_sensitive,
        stopwords=["Abc", "x"],
        locale="C",
    )
    for words_given in (["abc", "ABC", "Abc", "X", "z Y"], ["Abc"] * 5):
        x = np.array(words_given, object).reshape(shape)
        model, (y,) = run([normalizer], {"x": x})
        (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
        assert y.shape == expected.shape
        assert y.tolist() == expected.tolist()


def test_ngrams_of_words():
    vectorizer = node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        mode="TF",
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=1,
        ngram_counts=[0, 2],
        ngram_indexes=[0, 3, 1, 2],
        pool_strings=["b", "ab", "ab", "b", "b", "zzz"],
    )
    x = np.array([["b", "ab", "b", "zzz", "b"], ["", "ab", "ab", "b", "é"]], object)
    model, (y,) = run([vectorizer], {"x": x})
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    np.testing.assert_array_equal(y, expected)


def test_concatenation_broadcasts():
    x, y = np.array([["a"], ["bc"]], object), np.array(["", "d", "é" * 40], object)
    _, (z,) = run([node("StringConcat", ["x", "y"], ["z"])], {"x": x, "y": y}, ["z"])
    assert z.tolist() == [[a + b for b in y] for (a,) in x]


def encoder(**attrs):
    return node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **attrs)


@pytest.mark.parametrize(
    ("bad_node", "error", "message"),
    [
        (node("RegexFullMatch", ["x"], ["y"], pattern="(?=a)"), UnsupportedOperatorError, "="),
        (node("RegexFullMatch", ["x"], ["y"], pattern="(a"), InvalidModelError, "does not end"),
        (node("StringNormalizer", ["x"], ["y"], locale="tr"), UnsupportedOperatorError, "'tr'"),
        (node("StringNormalizer", ["x"], ["y"], case_change_action="l"), InvalidModelError, "'l'"),
        (encoder(keys_strings=["a"]), InvalidModelError, "no values"),
        (encoder(keys_strings=["a"], values_int64s=[1, 2]), InvalidModelError, "1 keys for 2"),
        (encoder(keys_strings=["a\0"], values_int64s=[1]), InvalidModelError, "NUL"),
        (encoder(keys_int64s=[1], values_int64s=[2]), UnsupportedOperatorError, "of strings"),
    ],
)
def test_refused(bad_node, error, message):
    model = strings_model([bad_node], {"x": (STRING, [3])}, ["y"])
    with pytest.raises(error, match=message):
        farrier.compile(model, verify=False)


def test_every_flipped_byte_is_refused_or_read():
    """As of any model (tests/frontends/onnx/importer): nothing but an error for the user."""
    nodes = [
        node("StringConcat", ["x", "c"], ["k"]),
        node("StringSplit", ["k"], ["s", "n"], delimiter="ab", maxsplit=2),
        node("RegexFullMatch", ["x"], ["r"], pattern=r"[a-c]{2,}x\b|(?:é)"),
        node("StringNormalizer", ["x"], ["z"], stopwords=["a", "é"], case_change_action="LOWER"),
        encoder(keys_strings=["a", "b"], values_floats=[1.0, 2.0]),
        node("Equal", ["k", "x"], ["e"]),
        node("Reshape", ["x", "i"], ["q"]),
        node("Gather", ["x", "i"], ["g"], axis=-1),
    ]
    outputs = ["s", "n", "r", "z", "y", "e", "q", "g"]
    whole = strings_model(nodes, {"x": (STRING, [3])}, outputs, {"c": "é", "i": [-1]})
    survived = 0
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40 if position % 2 else 0x15
        try:
            import_model(bytes(damaged))
            survived += 1
        except FarrierError:
            pass
    assert 0 < survived < len(whole)
