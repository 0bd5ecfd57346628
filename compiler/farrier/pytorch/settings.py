"""Translate the arguments `mode` and `options` of `torch.compile` to Farrier's options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from farrier.errors import UsageError
from farrier.options import CompileOptions

# What a user waits for of one graph when the best code is asked for; inductor takes minutes too.
_TUNING_S = 60.0
_MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {},  # Its means are CUDA graphs; a call on the CPU has little overhead.
    "max-autotune": {"budget_s": _TUNING_S},
    "max-autotune-no-cudagraphs": {"budget_s": _TUNING_S},
}
_OWN = ("freeze", "background")
_COMPILING = (
    *("budget_s", "cores", "max_layer_error", "precision"),
    *("seed", "threads", "trials", "typical", "verify"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a `torch.compile`. With `freeze` weights are constants of the code; with
    `background` another process compiles, and the graph runs in eager mode until that has finished.
    """

    options: CompileOptions
    freeze: bool = False
    background: bool = False


def settings_of(mode: str | None, options: Mapping[str, Any] | None) -> Settings:
    """Return the settings for a mode and options. Raises UsageError for unknown ones."""
    if (mode or "default") not in _MODES:
        raise UsageError(
            f"torch.compile has no mode {mode!r} with Farrier", hint=f"modes: {', '.join(_MODES)}"
        )
    words = {"verify": False, **_MODES[mode or "default"], **(options or {})}
    unknown = sorted(set(words) - {*_OWN, *_COMPILING})
    if unknown:
        raise UsageError(
            f"Farrier has no options {', '.join(unknown)} of torch.compile",
            hint=f"options: {', '.join((*_OWN, *_COMPILING))}",
        )
    own = {name: bool(words.pop(name, False)) for name in _OWN}
    return Settings(CompileOptions(**words), **own)
