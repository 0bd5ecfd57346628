"""Each place that takes compile options by name takes those of `CompileOptions`, with its defaults.

The signatures are written out, for people who read them; this holds them to the one list.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import farrier
from farrier.cache.key import entry_key
from farrier.cli import local, remote
from farrier.options import CompileOptions
from farrier_server.api.jobs import Options
from tests.wire.forms import OPTIONS

_NAMES = tuple(field.name for field in dataclasses.fields(CompileOptions))
_DEFAULTS = CompileOptions()
# The command line has other words for some, which it reads as text.
_WORDS = {"shapes": "shape", "states": "state", "budget_s": "budget"}
_ON_A_FARM = frozenset(_NAMES) - {"cores"}  # Those are the worker's to set.


@pytest.mark.parametrize(
    ("function", "names", "words"),
    [
        (farrier.compile, frozenset(_NAMES), {}),
        (farrier.Client.submit, _ON_A_FARM, {}),
        (local.compile_, frozenset(_NAMES), _WORDS),
        (remote.submit, _ON_A_FARM, _WORDS),
    ],
    ids=["compile", "Client.submit", "farrier compile", "farrier submit"],
)
def test_a_function_takes_each_option(
    function: Callable[..., Any], names: frozenset[str], words: Mapping[str, str]
):
    parameters = inspect.signature(function).parameters
    for name in names:
        taken = parameters[words.get(name, name)].default
        default = getattr(_DEFAULTS, name)
        is_unset = taken is None or (taken == "" and isinstance(default, Mapping))
        assert is_unset or taken == default, name
    assert not (set(_NAMES) - names) & set(parameters)


def test_a_request_takes_each_option():
    assert set(Options.model_fields) == set(_NAMES)
    assert Options().compile_options() == _DEFAULTS
    assert Options(**OPTIONS.to_dict()).compile_options() == OPTIONS


def test_each_option_that_decides_about_the_code_is_in_the_key_of_the_cache():
    usual = entry_key("model", _DEFAULTS, {})
    keys = {
        name: entry_key("model", dataclasses.replace(_DEFAULTS, **{name: value}), {})
        for name in _NAMES
        if (value := getattr(OPTIONS, name)) != getattr(_DEFAULTS, name)
    }
    assert set(keys) == set(_NAMES)
    assert keys.pop("cores") == usual
    assert len({usual, *keys.values()}) == len(keys) + 1
