"""Patterns as automata, against Python's `re`."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.frontends.onnx.importer.strings.automaton import automaton
from farrier.ir.strings import codes_of
from farrier.ops import Mismatch, NotSupported, lookup

LETTERS = "abcxy_.0-\n{},3é 𐐨"
texts = st.lists(st.text(LETTERS, max_size=7), min_size=1, max_size=20)
singles = st.sampled_from(
    ["a", "b", "é", ".", r"\.", r"\d", r"\W", "[^ab]", "[a-c_-]", "[]x]", "^", "$", r"\b", r"\B",
     r"\x61", r"[\x{61}-\x{63}]", r"(?s:.)", "(?P<n>)", "[^\\n]", "𐐨"]
)  # fmt: skip
patterns = st.recursive(
    singles,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,}", "{0,2}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda text: f"({text})"),
    ),
    max_leaves=6,
)


def matches(pattern, strings):
    tables = automaton(pattern)
    (actual,) = lookup("MatchAutomaton").reference([codes_of(strings), *tables], {})
    return actual.tolist()


@given(patterns, texts)
def test_python_agrees(pattern, strings):
    if r"\B" in pattern:  # Before Python 3.14 it never matched in an empty text.
        strings = [text or "a" for text in strings]
    theirs = pattern.replace("(?P<n>)", "()").replace(r"\x{61}", "a").replace(r"\x{63}", "c")
    expected = [re.compile(theirs, re.ASCII).fullmatch(text) is not None for text in strings]
    assert matches(pattern, strings) == expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\s", "\v", False),  # RE2 and Python differ in these.
        ("a$", "a\n", False),
        (r"(?s)a.b\z", "a\nb", True),
        ("a{,2}", "a{,2}", True),
        ("(?U)(?<name>a+)", "aa", True),
        ("", "", True),
        ("[^\\x{0}-\\x{10FFFF}]|b", "b", True),
    ],
)
def test_where_python_has_another_syntax(pattern, text, expected):
    assert matches(pattern, [text]) == [expected]


@pytest.mark.parametrize(
    "pattern",
    [r"\1", "(?=a)", "(?<!a)", r"\p{L}", "(?i)a", "[[:alpha:]]", r"\Qa\E", "(?m)^", r"\é"],
)
def test_beyond_the_subset(pattern):
    with pytest.raises(NotSupported, match="in the pattern"):
        automaton(pattern)


@pytest.mark.parametrize("pattern", ["(", ")", "*", "a|+", "[a", "[b-a]", "\\", "a{2,1}", "a{1001}",
                                     r"\x{110000}", r"\xg0", "(?P<n"])  # fmt: skip
def test_no_pattern(pattern):
    with pytest.raises(Mismatch, match="the pattern"):
        automaton(pattern)


@pytest.mark.parametrize(
    "pattern", ["(" * 5000, "((a{1000}){1000}){1000}", "(.|a)*a.{900}", "(a|b)*a(a|b){20}"]
)
def test_too_large(pattern):
    with pytest.raises(NotSupported):
        automaton(pattern)


def test_tables_are_complete():
    starts, following, accepts = automaton("[b-d]x|é")
    assert starts[0] == 0
    assert np.all(np.diff(starts.astype(np.int64)) > 0)
    assert following.shape == (len(accepts), len(starts))
    assert following.max() < len(accepts)
