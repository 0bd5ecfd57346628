"""Tests of the providers and their options, without a model."""

from __future__ import annotations

import pytest

from farrier.errors import UsageError
from farrier.onnxruntime.providers import FARRIER, choose
from farrier.options import CompileOptions


def chosen(**options):
    return choose([(FARRIER, options)], None, 0, pytest.fail)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ({"shapes": '{"X": ["Batch", 64]}'}, {"shapes": {"X": ("Batch", 64)}}),
        ({"shapes": "X=Batch,64"}, {"shapes": {"X": ("Batch", 64)}}),
        ({"typical": '{"N": 8}'}, {"typical": {"N": 8}}),
        ({"typical": "N=8"}, {"typical": {"N": 8}}),
        ({"hot": '[{"N": 8}, {"N": 1}]'}, {"hot": ({"N": 8}, {"N": 1})}),
        ({"hot": "N=8,M=2"}, {"hot": ({"N": 8, "M": 2},)}),
        ({"hot": "None"}, {"hot": ()}),
        ({"hot": "[]"}, {"hot": ()}),
        ({"verify": "False", "trials": "NONE"}, {"verify": False, "trials": None}),
        ({"budget_s": "2m"}, {"budget_s": 120.0}),
        ({"budget_s": "None"}, {"budget_s": None}),
        ({"trials": "8", "budget_s": "1.5"}, {"trials": 8, "budget_s": 1.5}),
    ],
)
def test_an_option_may_be_text(text, meant):
    assert chosen(**text).options == CompileOptions(**meant)


@pytest.mark.parametrize("text", [{"verify": "maybe"}, {"typical": "N"}, {"hot": "[" * 100_000}])
def test_text_that_says_nothing_is_refused(text):
    with pytest.raises(UsageError, match=r"cannot read"):
        chosen(**text)


@pytest.mark.parametrize(
    ("providers", "apart"), [(5, None), ([FARRIER], 5), ([FARRIER], [None]), ([5], None)]
)
def test_what_is_no_list_of_providers_is_refused(providers, apart):
    with pytest.raises(UsageError) as caught:
        choose(providers, apart, 0, pytest.fail)
    assert isinstance(caught.value, ValueError)


def test_the_cache_is_switched_by_a_word():
    assert not chosen(cache="FALSE").uses_cache
