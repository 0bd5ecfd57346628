"""The scheduling rules of this installation, whose tuning records may be used."""

from __future__ import annotations

from farrier.model_tuning import algorithms
from farrier.records import RuleId
from farrier.targets.registry import backends
from farrier.templates import installed as templates


def known_rules() -> frozenset[RuleId]:
    """Return the rules of Farrier and of installed packages with backends, each with its version.
    Raises UsageError for a backend that cannot be loaded."""
    of_spaces = (backend.rules for backend in backends())
    return frozenset({algorithms.RULE}).union(templates.rules(), *of_spaces)
