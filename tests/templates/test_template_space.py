"""Tests of a template's candidates for a kernel: their order, and the default that runs."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.cost_model import CostModel
from farrier.errors import UsageError
from farrier.plugins import Plugin
from farrier.records import RuleId
from farrier.schedule_search import EvolutionarySearch, TaskScheduler
from farrier.space import Estimate
from farrier.targets import parse_target
from farrier.targets.cpu.rules import for_program
from farrier.templates import Problem, Template, installed, knob
from farrier.templates.space import TemplateSpace
from tests.schedule.programs import matmul

TARGET = parse_target("x86-64-v3")
PROGRAM = matmul(6, 16, 32)


class Steps(Template):
    """A space of eight numbers of steps and three of rows, restricted to even products."""

    name, version = "steps", 3

    def applies(self, problem):
        return problem.program is PROGRAM

    def knobs(self, problem):
        return knob("steps", (7, *range(1, 7), 8)), knob("rows", (3, 1, 2))

    def allowed(self, problem, decisions):
        return decisions["steps"] * decisions["rows"] % 2 == 0

    def schedule(self, problem, schedule, decisions):
        schedule.split("y_k", decisions["steps"])


class Estimating(Steps):
    name = "estimating"

    def estimate(self, problem, columns):
        return Estimate(1e-6 * (1.0 + abs(columns["steps"] - 4) + columns["rows"]), {})


class Preferred(Steps):
    preferred = True


def space_of(template):
    return TemplateSpace(
        template, Problem(PROGRAM, TARGET, 2, TARGET.machine(2)), "the template", ""
    )


def with_installed(monkeypatch, *templates):
    plugins = tuple(Plugin("template", "x", "x:X", "x", template) for template in templates)
    monkeypatch.setattr(installed, "installed", lambda: plugins)
    return for_program(PROGRAM, TARGET, 2)


def test_candidates_are_what_is_allowed_under_names_of_the_template_s_own():
    space = space_of(Steps())
    rows = space.candidates()
    assert len(rows) == 8 * 3 - 4 * 2
    assert (rows.prod(axis=1) % 2 == 0).all()
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert [knob.name for knob in space.knobs] == ["steps.steps", "steps.rows"]
    assert space.rule == RuleId("template.steps", 3)
    assert 'split("y_k", 4, ' in space.trace({"steps.steps": 4, "steps.rows": 3})
    assert not space.contains({"steps.steps": 7, "steps.rows": 3})


def test_without_an_estimate_the_first_values_are_the_default_and_others_are_drawn():
    space = space_of(Steps())
    assert space.default() == {"steps.steps": 7, "steps.rows": 2}
    first = EvolutionarySearch("task", space, CostModel()).propose(9)
    assert first[0] == space.default()
    assert len({decisions["steps.steps"] for decisions in first}) > 4
    assert first == EvolutionarySearch("task", space_of(Steps()), CostModel()).propose(9)


def test_without_an_estimate_there_is_something_to_gain():
    space = space_of(Steps())
    scheduler = TaskScheduler([1], [space.seconds(space.default())], [space.bound])
    assert scheduler.next() == 0


def test_a_large_space_without_an_estimate_has_its_default_too():
    class Large(Steps):
        def knobs(self, problem):
            return tuple(knob(f"k{place}", range(9, 0, -1)) for place in range(7))

        def allowed(self, problem, decisions):
            return decisions["k5"] < decisions["k6"]

    space = space_of(Large())
    assert not space.is_whole
    assert list(space.default().values()) == [9, 9, 9, 9, 9, 8, 9]
    assert len(space.candidates()) > 1000


def test_an_estimate_ranks():
    space = space_of(Estimating())
    assert space.default() == {"estimating.steps": 4, "estimating.rows": 1}
    costs = space.cost(space.candidates())
    assert costs.min() == space.seconds(space.default())


def test_the_built_in_rule_s_default_runs_unless_the_template_is_preferred(monkeypatch):
    alone = with_installed(monkeypatch)
    beside = with_installed(monkeypatch, Steps(), Estimating())
    assert beside.default() == alone.default()
    assert beside.rule == alone.rule
    assert [str(rule) for rule in beside.rules] == [
        "register_tile",
        "template.steps",
        "template.estimating",
    ]
    preferred = with_installed(monkeypatch, Preferred())
    assert preferred.default() == space_of(Preferred()).default()
    assert set(preferred.rules) == {RuleId("template.steps", 3), alone.rule}


def test_a_template_joins_only_kernels_that_it_knows_and_no_sketch_joins_these(monkeypatch):
    with_installed(monkeypatch, Steps())
    unknown = {rule.name for rule in for_program(matmul(6, 16, 33), TARGET, 2).rules}
    assert "template.steps" not in unknown
    assert "sketch/tile-registers" in unknown
    rules = {rule.name for rule in for_program(PROGRAM, TARGET, 2).rules}
    assert rules == {"register_tile", "template.steps"}


def test_both_rules_are_described_to_the_learned_model(monkeypatch):
    space = with_installed(monkeypatch, Estimating())
    features, seconds = space.described(space.candidates())
    assert {"knob.estimating.rows", "knob.vectors", "task.operations", "machine.lanes"} <= set(
        features.names
    )
    assert np.isfinite(features.column("task.operations")).all()
    assert np.isfinite(seconds).all()


@pytest.mark.parametrize(
    ("values", "why"), [((), "has no values"), ((3, 1, 3), "has a value twice: 3, 1, 3")]
)
def test_a_knob_has_distinct_values(values, why):
    with pytest.raises(UsageError, match=f"the knob rows {why}"):
        knob("rows", values)
