"""Each idiom is seen where it stands, and plain prose is left alone."""

from __future__ import annotations

import pytest

from tests.language.__main__ import check
from tests.language.idioms import violations


@pytest.mark.parametrize(
    ("source", "idiom"),
    [
        ('"""What the tiles are."""', "opens with a relative word"),
        ('"""Whether it fits."""', "opens with a relative word"),
        ('def f():\n    """Returns the tiles."""', "opens with a verb in the third person"),
        ('"""Return what is left."""', "relative clause as noun"),
        ('"""Return the tiles, as told."""', "tell or say"),
        ('"""Raise for what has no shape and is no tensor."""', "is no"),
        ('"""Split a loop; gives both halves."""', "gives"),
        ('"""The rule beside the template."""', "beside"),
        ('"""Return as many tiles as fit."""', "as many"),
        ("x = 1  # of the tiles that fit", "comment is not a sentence"),
        ("# where the tile begins\nx = 1", "comment is not a sentence"),
        ("found = 1", "name for a role"),
        ("def f(given): ...", "name for a role"),
        ("for one in (): ...", "name for a role"),
    ],
)
def test_an_idiom_is_a_violation(source, idiom):
    assert [use.idiom for use in violations(source)] == [idiom]


@pytest.mark.parametrize(
    "source",
    [
        '"""Return the tiles of a panel."""',
        '"""The cost of one call, in seconds."""',
        '"""Check whether the panel fits."""',
        '"""Bytes between two rows."""',
        '"""Return `what is` and `found` as the schema names them."""',
        '"""Report that the branch is no longer needed, and a loop that gives up."""',
        "x = 64  # bytes",
        "x = 64  # noqa: E501, as the table is wide",
        "# Sentences may go on\n# below, in lower case.\nx = 1",
        "found_tiles = 1",
        "print(found)",
    ],
)
def test_plain_language_is_not_a_violation(source):
    assert violations(source) == []


def test_a_violation_names_line_and_better_form():
    (use,) = violations('x = 1\n\n\ndef f():\n    """Do it.\n\n    It is no tensor."""')
    assert (use.line, use.instead) == (7, "is not a")


def test_a_message_names_the_place_and_the_better_form():
    (message,) = check("a.py", "found = 1")
    assert message.startswith("a.py:1: name for a role: 'found'; write the thing")
