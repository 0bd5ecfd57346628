"""Searches of the built-in rules' candidates, whose knobs the tests of searching name."""

from __future__ import annotations

import pytest

from farrier.targets.cpu import rules


@pytest.fixture(autouse=True)
def _no_sketches(monkeypatch):
    monkeypatch.setattr(rules, "_WITH_SKETCHES", ())
