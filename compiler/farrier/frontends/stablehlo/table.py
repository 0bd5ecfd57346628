"""The table of rules, by name of operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

Rule: TypeAlias = Callable[..., Any]
R = TypeVar("R", bound=Rule)


class Entry(NamedTuple):
    """A rule. If `takes_spreads`, its operands may be `Spread`, broadcast tensors that are not
    materialized."""

    rule: Rule
    takes_spreads: bool


RULES: dict[str, Entry] = {}


def hlo(*names: str, takes_spreads: bool = False) -> Callable[[R], R]:
    """Declare the decorated function as the rule of operations such as `stablehlo.add`. A rule
    takes the scope and the operands, and returns a value, or several in a tuple."""

    def declare(rule: R) -> R:
        RULES.update(dict.fromkeys(names, Entry(rule, takes_spreads)))
        return rule

    return declare
