"""The inputs and outputs of a module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from farrier.errors import UnsupportedOperatorError
from farrier.frontends.builder import Declared
from farrier.frontends.stablehlo.module import Module, Symbol, TensorType, Type

DIMS = "farrier.dims"  # The names of an argument's dims, which `conversion/jax` writes: "b, 3".
_RESULT = "jax.result_info"
_STEP = re.compile(r"\['?([^'\]]*)'?\]|\.(\w+)")


class Interface:
    """The inputs and outputs of a module. Their names are the exporter's paths of arguments and
    results, or `input_N` and `output_N` where a path is missing or not unique."""

    def __init__(self, module: Module) -> None:
        main = module.main
        self._arguments = main.body.arguments
        self._argument_attrs = _padded(main.argument_attrs, len(self._arguments))
        self.results = main.result_types
        self.inputs = _differing(
            (_tidy(name or _name_in_call(module, value)), f"input_{place}")
            for place, (value, _, name) in enumerate(self._arguments)
        )
        self.outputs = _differing(
            (_tidy(_text(attrs, _RESULT).removeprefix("result")), f"output_{place}")
            for place, attrs in enumerate(_padded(main.result_attrs, len(self.results)))
        )

    def declared(self) -> list[Declared]:
        """Return the inputs. Raises UnsupportedOperatorError for a type that is not a tensor or not
        supported."""
        return list(self._declared())

    def _declared(self) -> Iterator[Declared]:
        arguments = zip(self.inputs, self._arguments, self._argument_attrs, strict=True)
        for name, (_, kind, _), attrs in arguments:
            if not isinstance(kind, TensorType) or kind.dtype is None:
                raise UnsupportedOperatorError(
                    f"the input {name!r} has the type {kind}, which Farrier does not have",
                    hint="export a function of arrays of real numbers",
                )
            yield Declared(name, kind.dtype, tuple(_dims(kind, _text(attrs, DIMS))))


def _name_in_call(module: Module, value: str) -> str:
    """Return the name of the argument `value` of the main function in the function to which `main`
    passes it, or "". JAX wraps a function with open sizes in a main function whose arguments have
    no names."""
    for operation in module.main.body.operations:
        callee = operation.attrs.get("callee")
        if value in operation.operands and isinstance(callee, Symbol):
            inner = module.functions.get(callee.name)
            arguments = inner.body.arguments if inner else ()
            place = operation.operands.index(value)
            return arguments[place][2] if place < len(arguments) else ""
    return ""


def type_name(kind: Type) -> str:
    """Return the name of a type for the report."""
    dtype = kind.dtype if isinstance(kind, TensorType) else None
    return str(kind) if dtype is None else str(dtype)


def _dims(kind: TensorType, names: str) -> Iterator[int | str]:
    listed = [name.strip() for name in names.split(",")] if names else []
    for axis, size in enumerate(kind.sizes):
        name = listed[axis] if len(listed) == kind.rank else "?"
        yield (name if name.isidentifier() else "?") if size is None else size


def _tidy(name: str) -> str:
    """Convert a path of JAX to a name: `params['Dense_0']['kernel']` → params.Dense_0.kernel."""
    head = re.match(r"\w*", name)
    steps = [step or attribute for step, attribute in _STEP.findall(name)]
    return ".".join(part for part in (head[0] if head else "", *steps) if part)


def _differing(names: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return unique names, one for each pair (preferred name, fallback). The fallback is used if
    the preferred name is "" or already in use."""
    taken: dict[str, None] = {}
    for name, place in names:
        taken[name if name and name not in taken else place] = None
    return tuple(taken)


def _text(attrs: Mapping[str, Any], key: str) -> str:
    value = attrs.get(key)
    return value if isinstance(value, str) else ""


def _padded(attrs: Iterable[Any], count: int) -> list[Mapping[str, Any]]:
    listed: list[Mapping[str, Any]] = [each if isinstance(each, dict) else {} for each in attrs]
    return [*listed, *({} for _ in range(count - len(listed)))][:count]
