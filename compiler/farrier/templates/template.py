"""The protocol of a template: for which kernels it is, what it leaves open, and how it schedules.

A package declares an instance as an entry point of the group `farrier.templates`.
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
    """A choice among whole numbers, the first of which is trusted most. Raises UsageError where
    there are none, or one is listed twice."""
    listed = tuple(map(int, values))
    if not listed:
        raise UsageError(f"the knob {name} has no values")
    if len(set(listed)) < len(listed):
        raise UsageError(f"the knob {name} has a value twice: {', '.join(map(str, listed))}")
    return Knob(name, listed)


class Template(abc.ABC):
    """Schedules for one kind of kernel. All methods are pure: equal arguments, equal answers."""

    name: ClassVar[str]  # letters, digits and `_`; of the installed templates each has its own
    version: ClassVar[int]  # to be raised whenever equal decisions no longer make equal code
    preferred: ClassVar[bool] = False  # whether its default runs where nothing was measured

    @abc.abstractmethod
    def applies(self, problem: Problem) -> bool:
        """Whether it knows how to schedule this kernel. Asked of every kernel, so cheap."""

    @abc.abstractmethod
    def knobs(self, problem: Problem) -> Sequence[Knob]:
        """What it leaves open for this kernel: one knob at least."""

    def allowed(self, problem: Problem, decisions: Decisions) -> bool:
        """Whether these values go together. Asked one candidate at a time, of up to 131,072 in a
        row, at some microseconds each."""
        return True

    def estimate(self, problem: Problem, columns: Columns) -> Estimate:
        """Predicted seconds of each candidate; `columns` holds the values of each knob, int64
        [candidates]. A template that does not say gets measured in random order, and its default
        is the first value of every knob."""
        raise NotImplementedError

    @abc.abstractmethod
    def schedule(self, problem: Problem, schedule: Schedule, decisions: Decisions) -> None:
        """Apply primitives to `schedule`, the naive loop nests. What it raises rejects the
        candidate."""


def rule_of(template: Template) -> RuleId:
    """Under which its records are kept. No built-in rule has a name that begins so."""
    return RuleId(f"template.{template.name}", template.version)
