"""Tests of the errors for a package that breaks the rules of templates: its author, its name, and
the reason."""

from __future__ import annotations

import numpy as np
import pytest

from farrier import intrinsics
from farrier.errors import UsageError
from farrier.plugins import Plugin
from farrier.records import Context, FileRecords
from farrier.targets import parse_target
from farrier.targets.cpu.rules import for_program
from farrier.targets.x86.intrinsics import BROADCASTS
from farrier.templates import TemplateError, installed
from farrier_device.measurement import Status
from tests.packages import MAIN
from tests.schedule.programs import matmul
from tests.templates.conftest import EXAMPLES, product

PROJECT = """
[project]
name = "lopsided"
version = "1.0"

[project.entry-points."farrier.templates"]
tilted = "lopsided:TEMPLATE"
"""
MODULE = """
import numpy as np
from farrier.templates import Columns, Estimate, Template, knob


class Tilted(Template):
    name, version, preferred = "tilted", 1, True

    def applies(self, problem):
        return True

    def knobs(self, problem):
        return knob("steps", (1, 2, 3, 4)), knob("vectors", (0, 1))

    def schedule(self, problem, schedule, decisions):
        output = problem.program.outputs[0].name
        schedule.split(f"{output}_k", decisions["steps"])

"""
AFTER = """

TEMPLATE = Tilted()
"""


@pytest.fixture
def package(tmp_path):
    """Make a package whose template has `methods` in addition to, or instead of, those of
    MODULE."""

    def made(methods="", after=AFTER):
        folder = tmp_path / "lopsided"
        folder.mkdir()
        (folder / "pyproject.toml").write_text(PROJECT)
        body = "".join(f"    {line}\n" if line else "\n" for line in methods.splitlines())
        (folder / "lopsided.py").write_text(MODULE + body + after)
        return folder

    return made


@pytest.fixture
def model(tmp_path):
    product(tmp_path / "m.onnx", np.float32, 6, 8, 16)
    return tmp_path / "m.onnx"


def schedule_default(program):
    space = for_program(program, parse_target("x86-64-v3"), 2)
    return space.schedule(space.default())


WHOSE = "the template tilted (lopsided:TEMPLATE) of the package lopsided"


@pytest.mark.parametrize(
    ("methods", "why"),
    [
        ("def applies(self, problem): return problem.lost",
         "fails to say whether it applies: AttributeError: 'Problem' object has no"),
        ("def knobs(self, problem): return ()", "has no knobs"),
        ("def knobs(self, problem): return knob('steps', ()),",
         "fails to say its knobs: the knob steps has no values"),
        ("def knobs(self, problem): return knob('a', (1, 2)), knob('a', (3,))", "several knobs a"),
        ("def knobs(self, problem): return {'steps': 3}", "has a str among its knobs"),
        ("def allowed(self, problem, decisions): return False", "allows none of its 8 candidates"),
        ("def allowed(self, problem, decisions): return decisions['rows'] < 3",
         "fails to say whether {'steps': 1, 'vectors': 0} is allowed: KeyError: 'rows'"),
        ("def estimate(self, problem, columns): return Estimate(np.ones(3), {})",
         "estimates seconds of shape (3,) for 8 candidates: (8,) is right"),
        ("def estimate(self, problem, columns): return Estimate(columns['steps'] * np.nan, {})",
         "estimates seconds that are not finite"),
        ("def estimate(self, problem, columns): return Estimate(columns['vectors'] * 1e-6, {})",
         "estimates seconds that are not positive"),
        ("def estimate(self, problem, columns): return 3.0", "gives a float for an Estimate"),
        ("def estimate(self, problem, columns): return Estimate(1e-6 * columns['rows'], {})",
         "fails to say its estimate: KeyError: 'rows'"),
        ("def schedule(self, problem, schedule, decisions): schedule.vectorize('lost')",
         "fails to schedule steps=1, vectors=0: vectorize: there is no loop lost; the loops are "),
        ("def schedule(self, problem, schedule, decisions): return decisions['rows']",
         "fails to schedule steps=1, vectors=0: KeyError: 'rows'"),
    ],
)  # fmt: skip
def test_a_template_is_named_with_its_kernel_and_the_reason(monkeypatch, methods, why):
    names = {}
    exec(f"{MODULE}    {methods}\n{AFTER}", names)
    plugin = Plugin("template", "tilted", "lopsided:TEMPLATE", "lopsided", names["TEMPLATE"])
    monkeypatch.setattr(installed, "installed", lambda: (plugin,))
    with pytest.raises(TemplateError) as caught:
        schedule_default(matmul(6, 8, 16))
    assert caught.value.message.startswith(f"{WHOSE}, called tilted, asked about matmul, ")
    assert why in caught.value.message
    assert "pip uninstall lopsided" in caught.value.hint


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("import lost\nTEMPLATE = Tilted()", "cannot be loaded: ModuleNotFoundError"),
        ("TEMPLATE = Tilted", "is a class, no instance of a subclass of Template"),
        ("TEMPLATE = Tilted()\nTEMPLATE.name = 'a b'", "has the name 'a b': letters, digits"),
        ("TEMPLATE = Tilted()\nTEMPLATE.version = '1'", "has the version '1'"),
    ],
)
def test_what_is_no_template_is_named(python, package, model, after, why):
    said = python(
        MAIN, "compile", model.name, "--no-verify", packages=[package(after=after)], status=2
    )
    assert f"{WHOSE} {why}" in said
    assert "pip uninstall lopsided" in said


def test_two_templates_of_one_name_are_told_apart(python, package, model):
    renamed = package(after="Tilted.name = 'dense_product'\nTEMPLATE = Tilted()")
    said = python(
        MAIN,
        *("compile", model.name, "--no-verify"),
        packages=[renamed, EXAMPLES / "template_matmul"],
        status=2,
    )
    assert "of the package template-matmul is called dense_product, as is the template til" in said


def test_an_intrinsic_s_name_is_its_own(monkeypatch):
    (taken,) = (intrinsic for intrinsic in BROADCASTS if intrinsic.lanes == 8)
    plugin = Plugin("intrinsic", "fma", "mine:FMA", "mine", taken)
    monkeypatch.setattr(intrinsics, "plugins", lambda *_: (plugin,))
    with pytest.raises(UsageError, match=r"the intrinsic fma \(mine:FMA\) .* is called avx2_"):
        intrinsics._by_name.__wrapped__()


def test_a_candidate_that_cannot_be_scheduled_is_rejected_and_ends_nothing(
    python, package, model, tmp_path
):
    """Three of four candidates are rejected; the template is compared with the built-in rule's
    default."""
    methods = """
preferred = False
def schedule(self, problem, schedule, decisions):
    if decisions["steps"] > 1:
        raise RuntimeError("too steep")
"""
    said = python(
        MAIN,
        *("compile", model.name, "--trials", 24, "--records", "r.jsonl"),
        packages=[package(methods)],
    )
    assert "verified on local" in said
    mine = [
        record
        for record in FileRecords(tmp_path / "r.jsonl")
        if record.rule == "template.tilted" and record.context is Context.ALONE
    ]
    assert {(record.knobs["tilted.steps"] > 1, record.status) for record in mine} == {
        (True, Status.REJECTED),
        (False, Status.OK),
    }
