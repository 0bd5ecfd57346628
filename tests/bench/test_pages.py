"""Tests of `make pages` on a machine without a browser."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from bench.pages import __main__ as command


@pytest.fixture
def run(monkeypatch, capsys):
    """`make pages` for somebody who is not root, on a machine without Chromium."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda tool: None)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["pages", *words])
        code = command.main()
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_without_a_browser_it_says_what_is_missing(run):
    code, said = run("--tests")
    assert code != 0
    assert "which is not installed" in said


def test_where_it_is_optional_it_succeeds(run):
    code, said = run("--tests", "--optional")
    assert code == 0
    assert said.startswith("skipped: ")
