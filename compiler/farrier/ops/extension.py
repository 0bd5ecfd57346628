"""Operators that other packages add, as entry points of the group `farrier.operators`.

[project.entry-points."farrier.operators"]
softcap = "softcap:OPERATORS"
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from farrier.errors import FarrierError, UsageError
from farrier.ir.dim import Undecided
from farrier.ops.operator import Attrs, Kind, Mismatch, NotStatic, NotSupported, Operator
from farrier.plugins import OPERATORS as GROUP
from farrier.plugins import Plugin, plugins

# The attributes of an operator's nodes, from those of an ONNX node and the version of its domain
# that the model uses.
ImportRule: TypeAlias = Callable[[Attrs, int], Attrs]
T = TypeVar("T")

# Domains whose operators Farrier declares itself: another package cannot add to these.
_OWN_DOMAINS = frozenset(("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft"))
_RULES = (
    *("infer", "reference", "compute", "nest", "explicit"),
    *("copies", "symbolic", "from_types", "derivative", "in_place", "affine"),
    *("window", "layout", "positions"),
)


@dataclasses.dataclass(frozen=True)
class OperatorSet:
    """The operators of one package, and the rules by which ONNX models that use them are read.

    A node of the ONNX domain `domain` becomes a node of the operator with the same name, with the
    same inputs and attributes. `imports` maps the name of an operator whose attributes have another
    form in ONNX to an import rule.
    """

    domain: str
    operators: tuple[Operator, ...]
    imports: Mapping[str, ImportRule] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Imported:
    """The import rule of one ONNX operator: the name of the resulting node's operator, and the
    conversion of its attributes.
    """

    operator: str
    rule: ImportRule | None

    def attributes(self, attrs: Attrs, version: int) -> Attrs:
        """Return the attributes of Farrier's node for an ONNX node with attributes `attrs`;
        `version` is the opset version that the model imports.
        """
        return attrs if self.rule is None else self.rule(attrs, version)


@dataclasses.dataclass(frozen=True, slots=True)
class Installed:
    """The operators of all packages by name, and their imports by ONNX's qualified name."""

    operators: Mapping[str, Operator]
    imports: Mapping[str, Imported]


def installed(own: Collection[str]) -> Installed:
    """Collect the operators of all installed packages. `own` are the names of Farrier's own
    operators.

    Raises UsageError for a package that is broken, or whose operators have names already in use.
    """
    operators: dict[str, Operator] = {}
    imports: dict[str, Imported] = {}
    takers: dict[str, str] = dict.fromkeys(own, "an operator of Farrier")
    for plugin in plugins(GROUP, "operator set", OperatorSet, "OperatorSet"):
        _check(plugin)
        for operator in plugin.loaded.operators:
            if operator.name in takers:
                taker = takers[operator.name]
                raise _error(plugin, f"has the operator {operator.name}, as which {taker} is known")
            takers[operator.name] = f"one of {plugin}"
            operators[operator.name] = _guarded(operator, plugin)
            imports[f"{plugin.loaded.domain}:{operator.name}"] = _import_of(operator.name, plugin)
    return Installed(operators, imports)


def _check(plugin: Plugin[OperatorSet]) -> None:
    """Check the fields of an operator set. Raises UsageError."""
    domain, operators, imports = (
        getattr(plugin.loaded, field.name) for field in dataclasses.fields(OperatorSet)
    )
    if not isinstance(domain, str) or domain in _OWN_DOMAINS or ":" in domain:
        raise _error(plugin, f"has the domain {domain!r}: use one of the package's own")
    if not isinstance(operators, tuple) or not operators:
        raise _error(plugin, "has no tuple of operators")
    for operator in operators:
        if not isinstance(operator, Operator):
            raise _error(plugin, f"has a {type(operator).__name__} among its operators")
        for reason in _faults(operator):
            raise _error(plugin, f"has the operator {operator.name!r}, {reason}")
    taken = {operator.name for operator in operators}
    for name, rule in imports.items():
        if name not in taken:
            raise _error(plugin, f"imports {name!r}, which is not among its operators")
        if not callable(rule):
            raise _error(plugin, f"imports {name} by a {type(rule).__name__}, not by a function")


def _faults(operator: Operator) -> Iterator[str]:
    """Yield a description of each defect for which the compiler cannot use an operator."""
    if not isinstance(operator.name, str) or not operator.name.isidentifier():
        yield "whose name is not an identifier"
    for rule in ("infer", "reference"):
        if not callable(getattr(operator, rule)):
            yield f"which has no rule `{rule}`"
    for rule in _RULES:
        if getattr(operator, rule) is not None and not callable(getattr(operator, rule)):
            yield f"whose rule `{rule}` is a {type(getattr(operator, rule)).__name__}"
    match operator.kind:
        case Kind.NEST if operator.nest is None:
            yield "which has no rule `nest`: no kernel can be made of it"
        case Kind.CONTROL:
            yield "of the kind control: control flow is the compiler's own"
        case Kind.NEST | Kind.OPAQUE:
            pass
        case _ if operator.compute is None:
            yield "which has no rule `compute`: no kernel can be made of it"


def _error(plugin: Plugin[OperatorSet], reason: str) -> UsageError:
    return UsageError(f"{plugin} {reason}", hint=plugin.way_out)


def _import_of(name: str, plugin: Plugin[OperatorSet]) -> Imported:
    rule = plugin.loaded.imports.get(name)
    return Imported(name, None if rule is None else _guard(rule, f"import of {name}", plugin))


def _guarded(operator: Operator, plugin: Plugin[OperatorSet]) -> Operator:
    """Return a copy of the operator in which an exception from any of its rules becomes an error
    that names the package.
    """
    guarded: dict[str, Any] = {
        rule: _guard(getattr(operator, rule), f"rule `{rule}` of {operator.name}", plugin)
        for rule in _RULES
        if getattr(operator, rule) is not None
    }
    return dataclasses.replace(operator, **guarded)


def _guard(rule: Callable[..., T], what: str, plugin: Plugin[OperatorSet]) -> Callable[..., T]:
    """Return a function that calls `rule`, a rule of a package's operator. Exceptions that rules
    are allowed to raise, such as Mismatch and NotStatic, are passed on. Any other exception becomes
    a UsageError that names the package; `what` describes the rule in its message."""

    @functools.wraps(rule)
    def guarded(*arguments: Any, **named: Any) -> T:
        try:
            return rule(*arguments, **named)
        except (Mismatch, NotStatic, NotSupported, Undecided, FarrierError):
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise _error(plugin, f"fails in the {what}: {reason}") from error

    return guarded
