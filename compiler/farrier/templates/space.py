"""The space of a template's schedules for one kernel. A template is third-party code: whatever it
raises or returns becomes a candidate, or an error that names the template.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import numpy.typing as npt

from farrier.errors import CompilerError
from farrier.ir.dim import typical
from farrier.ir.work import arithmetic
from farrier.schedule import Schedule
from farrier.space.space import WHOLE, Columns, Decisions, Estimate, Knob, Population, Space
from farrier.templates.asked import Asked, described
from farrier.templates.errors import TemplateError
from farrier.templates.problem import Problem
from farrier.templates.template import Template, rule_of

_ABOVE_BOUND = 4.0  # The presumed time without an estimate, over the least possible time.
_SHUFFLED = 0  # The seed of the order in which candidates without estimates are measured.


class TemplateSpace(Space):
    """The space of the candidates of `template` for the kernel in `problem`. In error messages,
    `named` is the name of the template and `hint` the advice to the user. Knobs are named
    `<template>.<knob>`. Raises TemplateError for malformed knobs."""

    def __init__(self, template: Template, problem: Problem, named: str, hint: str) -> None:
        self._template = template
        self._problem = problem
        self._asked = Asked(named, problem.program.name, hint)
        self._estimates = type(template).estimate is not Template.estimate
        knobs = self._asked.answer("its knobs", lambda: tuple(template.knobs(problem)))
        self._check_knobs(knobs)
        self._plain = {f"{template.name}.{knob.name}": knob.name for knob in knobs}
        named_knobs = tuple(Knob(f"{template.name}.{k.name}", k.values, k.parts) for k in knobs)
        super().__init__(
            rule_of(template), named_knobs, self._allows, self._estimated, self._scheduled
        )

    def candidates(self, limit: int = WHOLE, seed: int = 0) -> Population:
        """Return allowed rows as `Space.candidates` does. For a template without estimates, the
        first allowed values are the default, and all other candidates are in random order."""
        try:
            rows = super().candidates(limit, seed)
        except TemplateError:
            raise
        except CompilerError:
            raise self._asked.error(f"allows none of its {self.size} candidates") from None
        if self._estimates:
            return rows
        first = rows[0] if self.is_whole else self._first  # All rows are in the values' order.
        rows = np.random.default_rng(_SHUFFLED).permutation(rows)
        if first is None:
            return rows
        return np.concatenate([first[None], rows[(rows != first).any(axis=1)]])

    def schedule(self, decisions: Decisions) -> Schedule:
        try:
            return super().schedule(decisions)
        except TemplateError:
            raise
        except CompilerError as error:
            raise self._failed(decisions, error) from error

    def _failed(self, decisions: Decisions, error: Exception) -> TemplateError:
        listed = ", ".join(f"{self._plain[name]}={value}" for name, value in decisions.items())
        return self._asked.error(f"fails to schedule {listed}: {described(error)}")

    def _check_knobs(self, knobs: tuple[Knob, ...]) -> None:
        if not knobs:
            raise self._asked.error("has no knobs; one of a single value is enough")
        for knob in knobs:
            if not isinstance(knob, Knob):
                raise self._asked.error(f"has a {type(knob).__name__} among its knobs")
            if not knob.values:
                raise self._asked.error(f"has no values for its knob {knob.name}")
        names = [knob.name for knob in knobs]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise self._asked.error(f"has several knobs {', '.join(twice)}")

    def _allows(self, columns: Columns) -> npt.NDArray[np.bool_]:
        names = [self._plain[name] for name in columns]
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return np.fromiter(
            (self._is_allowed(dict(zip(names, row, strict=True))) for row in rows), bool
        )

    def _is_allowed(self, decisions: Decisions) -> bool:
        allowed = self._template.allowed
        return self._asked.answer(
            f"whether {dict(decisions)} is allowed",
            lambda: bool(allowed(self._problem, decisions)),
        )

    @functools.cached_property
    def _first(self) -> npt.NDArray[np.int64] | None:
        """Return the first allowed row in the order of the knobs' values; None if none of the first
        `WHOLE` rows is allowed."""
        values = itertools.product(*(knob.values for knob in self.knobs))
        for row in itertools.islice(values, WHOLE):
            decisions = dict(zip(self._plain.values(), row, strict=True))
            if self._is_allowed(decisions):
                return np.array(row, np.int64)
        return None

    def _estimated(self, columns: Columns) -> Estimate:
        count = len(next(iter(columns.values())))
        if not count:  # Third-party code need not handle an empty population.
            return Estimate(np.zeros(0), {})
        if not self._estimates:
            return self._presumed(count)
        plain = {self._plain[name]: column for name, column in columns.items()}
        estimate = self._asked.answer(
            "its estimate", lambda: self._template.estimate(self._problem, plain)
        )
        if not isinstance(estimate, Estimate):
            raise self._asked.error(f"gives a {type(estimate).__name__} for an Estimate")
        for name, numbers in (("seconds", estimate.seconds), *estimate.terms.items()):
            shape = np.shape(numbers)
            if shape != (count,):
                raise self._asked.error(
                    f"estimates {name} of shape {shape} for {count} candidates: ({count},) is right"
                )
            if not np.isfinite(numbers).all():
                raise self._asked.error(f"estimates {name} that are not finite")
        if not (estimate.seconds > 0).all():
            raise self._asked.error("estimates seconds that are not positive")
        return estimate

    def _presumed(self, count: int) -> Estimate:
        """Return an estimate for `count` candidates of a template without estimates. All candidates
        have the same predicted time: a fixed multiple of the larger of the kernel's arithmetic time
        and its memory time."""
        program, machine = self._problem.program, self._problem.machine
        moved = sum(typical(buffer.nbytes) for buffer in (*program.inputs, *program.outputs))
        terms = {
            "compute": np.full(count, max(arithmetic(program), 1) / machine.peak),
            "memory": np.full(count, moved / machine.memory_bandwidth),
        }
        seconds = np.maximum(terms["compute"] / machine.threads, terms["memory"])
        return Estimate(_ABOVE_BOUND * seconds, terms)

    def _scheduled(self, decisions: Decisions) -> Schedule:
        schedule = self._problem.schedule()
        plain = {self._plain[name]: value for name, value in decisions.items()}
        try:
            self._template.schedule(self._problem, schedule, plain)
        except Exception as error:  # Third-party code may raise any exception.
            raise self._failed(decisions, error) from error
        return schedule
