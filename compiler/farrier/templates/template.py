"""The protocol of a template: the kernels to which it applies, its knobs, and its schedules.

A package registers an instance as an entry point of the group `farrier.templates`.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import ClassVar

from farrier.errors import UsageError
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.space import Columns, Decisions, Estimate, Knob
from farrier.templates.problem import Problem


def knob(name: str, values: Iterable[int]) -> Knob:
    """Return a knob with integer values, of which the first is the best guess. Raises UsageError if
    `values` is empty or contains a value twice."""
    listed = tuple(map(int, values))
    if not listed:
        raise UsageError(f"the knob {name} has no values")
    if len(set(listed)) < len(listed):
        raise UsageError(f"the knob {name} has a value twice: {', '.join(map(str, listed))}")
    return Knob(name, listed)


class Template(abc.ABC):
    """Schedules for one kind of kernel. All methods are pure: equal arguments lead to equal
    results."""

    name: ClassVar[str]  # Letters, digits and `_`; no two installed templates may have the same.
    version: ClassVar[int]  # To be raised whenever equal decisions no longer make equal code.
    preferred: ClassVar[bool] = False  # Whether its default runs if nothing was measured.

    @abc.abstractmethod
    def applies(self, problem: Problem) -> bool:
        """Return whether the template can schedule this kernel. The method is called for every
        kernel, so it must be cheap."""

    @abc.abstractmethod
    def knobs(self, problem: Problem) -> Sequence[Knob]:
        """Return the scheduling decisions for this kernel: at least one knob."""

    def allowed(self, problem: Problem, decisions: Decisions) -> bool:
        """Return whether the values in `decisions` may be combined. The method is called for one
        candidate at a time, up to 131,072 times in a row, so it should take only a few
        microseconds."""
        return True

    def estimate(self, problem: Problem, columns: Columns) -> Estimate:
        """Return the predicted seconds of each candidate; `columns` holds the values of each knob,
        int64 [candidates]. The method is optional: without it, candidates are measured in random
        order, and the default consists of the first value of every knob."""
        raise NotImplementedError

    @abc.abstractmethod
    def schedule(self, problem: Problem, schedule: Schedule, decisions: Decisions) -> None:
        """Apply primitives to `schedule`, which starts with the naive loop nests. Any exception
        rejects the candidate."""


def rule_of(template: Template) -> RuleId:
    """Return the rule under which the template's records are stored. Its name starts with a prefix
    that no built-in rule has."""
    return RuleId(f"template.{template.name}", template.version)
