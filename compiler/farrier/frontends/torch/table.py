"""The table of rules, by name of ATen operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

Rule: TypeAlias = Callable[..., Any]
R = TypeVar("R", bound=Rule)

RULES: dict[str, Rule] = {}
VIEWS: set[str] = set()  # Operators whose result shares the memory of their first operand.


def aten(*names: str, view: bool = False) -> Callable[[R], R]:
    """Declare the decorated function as the rule of operators such as `aten.linear.default`. A rule
    takes the scope and the call's arguments, and returns a name, or several in a tuple or list. A
    result of a `view` shares memory with the operand, so a write to either is visible in the other.
    """

    def declare(rule: R) -> R:
        for name in names:
            RULES[name] = rule
            if view:
                VIEWS.add(name)
        return rule

    return declare


def writes_in_place(target: str) -> bool:
    """Check whether an operator writes into its first operand, such as `aten.add_.Tensor`."""
    parts = target.split(".")
    return (
        target not in RULES
        and len(parts) == 3
        and parts[1].endswith("_")
        and not parts[1].endswith("__")
    )


def rule_of(target: str) -> tuple[Rule, str] | None:
    """Return the rule of an operator, and the name under which it stands in the table; None without
    a rule. For an in-place operator such as `aten.add_.Tensor`, this is the rule of
    `aten.add.Tensor`."""
    if writes_in_place(target):
        namespace, name, overload = target.split(".")
        target = f"{namespace}.{name[:-1]}.{overload}"
    return (RULES[target], target) if target in RULES else None
