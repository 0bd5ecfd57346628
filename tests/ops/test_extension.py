"""Operators of other packages: the page on them, run as a reader would, and broken packages."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import farrier
from farrier.errors import UsageError
from farrier.ops import Kind, Mismatch, Operator, OperatorSet, extension, lookup
from farrier.plugins import Plugin
from tests.documentation.snippets import programs
from tests.packages import MAIN, install, run_python

PATH = Path(__file__).parents[2] / "docs/develop/custom_operators.md"
PAGE = PATH.read_text()
POINTS = {"farrier.operators": {"capped": "capped:OPERATORS"}}
WHOSE = r"the operator set capped \(capped:OPERATORS\) of the package capped "


def _module():
    names = {}
    exec(programs(PATH)[0], names)
    return names


@pytest.mark.long
def test_the_page_leads_to_a_compiled_model(tmp_path):
    (project,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    module, model = programs(PATH)
    installs, compiles = re.findall(r"^    \$ (.*)$", PAGE, re.MULTILINE)
    assert installs == "pip install ./capped"
    assert 'capped = "capped:OPERATORS"' in project
    (tmp_path / "capped").mkdir()
    (tmp_path / "capped/capped.py").write_text(module)
    folders = install(tmp_path / "capped", tmp_path / "site", "capped", "1.0", POINTS)
    run_python(model, folders=[], cwd=tmp_path)
    output = run_python(MAIN, *compiles.split()[1:], folders=folders, cwd=tmp_path)
    assert "verified on local" in output
    artifact = farrier.load(tmp_path / "capped.farrier")
    kernels = [kernel.name for kernel in artifact.manifest.kernels]
    assert [re.sub(r"_[\dx]+(_k\d+)?", "", name) for name in kernels] == [
        "matmul_softcap",
        "roll_relu",
    ]
    x = np.random.default_rng(1).standard_normal((8, 32)).astype(np.float32)
    weights = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)
    expected = np.maximum(np.roll(5 * np.tanh(x @ weights / 5), 3, axis=-1), 0)
    (y,) = artifact.run({"x": x}).values()
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    message = run_python(MAIN, *compiles.split()[1:], folders=[], cwd=tmp_path, status=4)
    assert "com.example.capped:Softcap ×1" in message


def test_the_page_lists_every_field_of_an_operator():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert set(rows) == {field.name for field in dataclasses.fields(Operator)}


@pytest.fixture
def installed(monkeypatch):
    """Find operator sets as those of a package `capped`."""

    def find(*sets):
        points = [Plugin("operator set", "capped", "capped:OPERATORS", "capped", s) for s in sets]
        monkeypatch.setattr(extension, "plugins", lambda *_: points)
        return extension.installed({"Relu"})

    return find


ROLL = next(each for each in _module()["OPERATORS"].operators if each.name == "Roll")


def _set(operator=ROLL, domain="com.example.capped", **fields):
    operators = (dataclasses.replace(operator, **fields),) if fields else (operator,)
    return OperatorSet(domain, operators)


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (_set(name="Relu"), "has the operator Relu, as which an operator of Farrier is known"),
        (_set(name="a b"), "has the operator 'a b', whose name is not an identifier"),
        (_set(compute=None), "has the operator 'Roll', which has no rule `compute`: no kernel"),
        (_set(kind=Kind.NEST), "has the operator 'Roll', which has no rule `nest`: no kernel"),
        (_set(kind=Kind.CONTROL), "has the operator 'Roll', of the kind control"),
        (_set(reference=None), "has the operator 'Roll', which has no rule `reference`"),
        (_set(affine=3), "has the operator 'Roll', whose rule `affine` is a int"),
        (_set(domain="com.microsoft"), "has the domain 'com.microsoft': use one of the package's"),
        (_set(operator="Roll"), "has a str among its operators"),
        (OperatorSet("a", []), "has no tuple of operators"),
        (OperatorSet("a", (ROLL,), {"Rol": dict}), "imports 'Rol', which is not among its oper"),  # type: ignore[dict-item]
        (OperatorSet("a", (ROLL,), {"Roll": 3}), "imports Roll by a int, not by a function"),  # type: ignore[dict-item]
    ],
)
def test_a_set_that_is_refused_is_named_with_the_reason(installed, refused, reason):
    with pytest.raises(UsageError, match=WHOSE + re.escape(reason)) as caught:
        installed(refused)
    assert caught.value.hint == "update the package, or pip uninstall capped"


def test_a_name_of_two_packages_is_refused(installed):
    with pytest.raises(UsageError, match=f"operator Roll, as which one of {WHOSE}is known"):
        installed(_set(), _set())


def test_a_rule_that_fails_names_the_package_and_one_that_refuses_does_not(installed):
    roll = installed(_set()).operators["Roll"]
    with pytest.raises(UsageError, match=f"{WHOSE}fails in the rule `reference` of Roll: TypeErr"):
        roll.reference(None, {})
    with pytest.raises(Mismatch, match="input 0 is required"):
        roll.infer((), {}, {})


def test_an_operator_that_nobody_declares_is_a_key_error():
    with pytest.raises(KeyError):
        lookup("Roll")
