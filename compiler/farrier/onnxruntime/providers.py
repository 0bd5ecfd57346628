"""Execution providers: Farrier's own, and ONNX Runtime's name for CPUs, which also selects
Farrier."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farrier.errors import UsageError
from farrier.onnxruntime.errors import as_provider_option, refused
from farrier.options import CompileOptions, parse_budget
from farrier.options.shapes import parse_hot, parse_shapes, parse_sizes
from farrier.options.states import parse_states

FARRIER, CPU = "FarrierExecutionProvider", "CPUExecutionProvider"
AVAILABLE = (FARRIER, CPU)
_TEXTS = ("target", "precision")
_WORDS = {"true": True, "false": False, "none": None}
_PARSERS: dict[str, Callable[[str], Any]] = {
    "budget_s": lambda text: None if text.lower() == "none" else parse_budget(text),
    "hot": lambda text: parse_hot([text.lower() if text.lower() == "none" else text]),
    "shapes": lambda text: parse_shapes([text]),
    "states": lambda text: parse_states([text]),
    "typical": parse_sizes,
}
_SERVED_BY_CPU = ("use_arena",)  # An option of ONNX Runtime's provider that changes no result.


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """The providers in use, in order of preference, and the options for the compiler."""

    names: tuple[str, ...]
    options: CompileOptions
    uses_cache: bool


def choose(
    providers: Sequence[Any] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
    threads: int,
    warn: Callable[[str], None],
) -> Chosen:
    """Return the providers and compiler options for a session's arguments. A provider that does not
    exist here is skipped with a warning, as in ONNX Runtime. Raises ValueError for anything but a
    list of names or of (name, options); UsageError for options unknown to Farrier."""
    names: list[str] = []
    settings: dict[str, Any] = {}
    for name, options in _pairs(providers, provider_options):
        if name not in AVAILABLE:
            warn(f"no provider {name} here: the model runs on the CPU; there are {AVAILABLE}")
        elif name not in names:
            names.append(name)
            own = {k: v for k, v in options.items() if name == FARRIER or k not in _SERVED_BY_CPU}
            settings |= own
    if not providers:
        names = [FARRIER]
    if CPU not in names:
        names.append(CPU)
    uses_cache = _read(settings.pop("cache", True), "cache")
    try:
        values = {key: _read(value, key) for key, value in settings.items()}
        compiled = CompileOptions.from_dict({"threads": threads, **values})
    except UsageError as error:
        raise UsageError(error.message, hint=as_provider_option(error.hint)) from error
    return Chosen(tuple(names), compiled, bool(uses_cache))


def _pairs(
    providers: Sequence[Any] | None, provider_options: Sequence[Mapping[str, Any]] | None
) -> list[tuple[str, Mapping[str, Any]]]:
    entries = [providers] if isinstance(providers, str) else _listed(providers, "providers")
    apart = _listed(provider_options, "provider_options") or [{}] * len(entries)
    if len(apart) != len(entries):
        raise refused(
            UsageError, "ValueError", "providers and their options are lists of the same length"
        )
    pairs = []
    for entry, extra in zip(entries, apart, strict=True):
        name, options = _named((entry, extra) if isinstance(entry, str) else entry)
        pairs.append((name, options))
    return pairs


def _named(entry: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], Mapping):
        return str(entry[0]), entry[1]
    raise refused(
        UsageError,
        "ValueError",
        f"a provider is a name, or a name with options: {entry!r}",
        f"providers=[({FARRIER!r}, {{'threads': 1}})]",
    )


def _listed(value: Any, what: str) -> list[Any]:
    if value is None or isinstance(value, list | tuple):
        return list(value or ())
    raise refused(UsageError, "TypeError,ValueError", f"{what} are a list, not {value!r}")


def _read(value: Any, key: str) -> Any:
    """Parse an option's value, which ONNX Runtime's interface passes as text: JSON, True, False or
    None in any case, or the syntax of the command line. Raises UsageError."""
    if not isinstance(value, str) or key in _TEXTS:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    if key in _PARSERS:
        return _PARSERS[key](value)
    word = value.strip().lower()
    if word not in _WORDS:
        raise UsageError(f"cannot read the option {key} of {FARRIER}: {value!r}")
    return _WORDS[word]
