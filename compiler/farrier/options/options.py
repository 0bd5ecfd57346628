"""CompileOptions: the options of a compilation, the same in Python, on the command line and over
REST.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any

from farrier.errors import UsageError
from farrier.options.precision import parse_precision
from farrier.options.shapes import GivenShape, Hot, parse_dim
from farrier.options.states import parse_state
from farrier_device import codec

MAX_THREADS = 1024
MAX_CORES = 1024
# By default only the typical sizes get kernels of their own.
TYPICAL_ALONE: tuple[Hot, ...] = ({},)
MAX_LAYER_ERROR = 3e-6  # The error of Winograd's filtering with tiles of 4.


@dataclasses.dataclass(frozen=True, slots=True)
class CompileOptions:
    """All options that affect the result of a compilation, except the model.

    `shapes` maps an input's name to its dimensions: numbers, or names of open dims, whose sizes are
    known when the model runs (`farrier.options.shapes`); a dimension that neither the model nor the
    user fixes stays open. `typical` maps open dims to their usual sizes. Each element of `hot` maps
    open dims to sizes for which kernels are specialized, by default the typical ones; a dim that it
    omits has its typical size. `trials` limits the number of measured candidates, `budget_s` the
    seconds spent on tuning; without both, nothing is measured and the analytic ranking decides.
    `states` maps inputs that a session keeps between calls to the outputs that replace them
    (`farrier.options.states`). `max_layer_error` limits the algorithms for a convolution by their
    rounding error, as max |error| over max |result| of the layer; the direct sum (below 2e-6) is
    always allowed. The rounding of `precision` is additional: up to 8e-3 per layer with operands in
    bf16, 4e-3 in f16.
    """

    target: str = "host"
    shapes: Mapping[str, GivenShape] = dataclasses.field(default_factory=dict)
    typical: Hot = dataclasses.field(default_factory=dict)
    hot: tuple[Hot, ...] = TYPICAL_ALONE
    trials: int | None = None
    budget_s: float | None = None
    threads: int = 0  # 0 stands for one per core of the target.
    seed: int = 0  # The seed of the search.
    max_layer_error: float = MAX_LAYER_ERROR
    verify: bool = True
    precision: str = "f32"  # Or "bf16", "f16", "tf32": the type of the factors of contractions.
    # Those of the machine that compiles, which it may use; 0: all. The code is the same.
    cores: int = dataclasses.field(default=0, metadata=codec.OMIT_EMPTY)
    states: Mapping[str, str] = dataclasses.field(default_factory=dict, metadata=codec.OMIT_EMPTY)

    def __post_init__(self) -> None:
        """Check the values, and convert numpy's numbers to Python's, which JSON can represent.
        Raises UsageError."""
        for name in ("trials", "threads", "seed", "cores"):
            if name != "trials" or self.trials is not None:
                object.__setattr__(self, name, _whole(getattr(self, name), name))
        for name in ("budget_s", "max_layer_error"):
            if name != "budget_s" or self.budget_s is not None:
                object.__setattr__(self, name, _real(getattr(self, name), name))
        shapes = {name: tuple(map(_plain, shape)) for name, shape in self.shapes.items()}
        object.__setattr__(self, "shapes", shapes)
        object.__setattr__(self, "typical", _sizes(self.typical))
        object.__setattr__(self, "hot", tuple(map(_sizes, self.hot)))
        parse_precision(self.precision)
        object.__setattr__(self, "states", dict(self.states))
        for name, declared in self.states.items():
            parse_state(name, _text(declared, f"the state {name}"))
        for name, shape in self.shapes.items():
            for dim in shape:
                parse_dim(dim, f" of input {name!r}")
        if self.trials is not None and self.trials < 0:
            raise UsageError(f"trials is {self.trials}", hint="--trials 0 compiles without tuning")
        if self.budget_s is not None and self.budget_s < 0:
            raise UsageError(f"budget is {self.budget_s} s", hint="--budget 60s")
        if not 0 <= self.max_layer_error < float("inf"):
            raise UsageError(
                f"the largest error of a layer is {self.max_layer_error}",
                hint=f"--max-layer-error {MAX_LAYER_ERROR:g}; 0 leaves the plain sums",
            )
        if not 0 <= self.threads <= MAX_THREADS:
            raise UsageError(
                f"threads is {self.threads}, of at most {MAX_THREADS}",
                hint="--threads 0 takes every core",
            )
        if not 0 <= self.cores <= MAX_CORES:
            raise UsageError(
                f"cores is {self.cores}, of at most {MAX_CORES}",
                hint="--cores 0 takes every core of the machine that compiles",
            )

    @property
    def tunes(self) -> bool:
        """Check whether the compilation measures candidates."""
        return bool(self.trials) or bool(self.budget_s)

    def require_tuning(self) -> None:
        """Raise UsageError without trials or budget, for a job that returns its artifact at once
        and then tunes, which would have nothing to do."""
        if not self.tunes:
            raise UsageError(
                "there is nothing to do once the artifact is there: neither trials nor a budget is "
                "given",
                hint="--now --budget 10m, or --now --trials 1000",
            )

    @property
    def needs_device(self) -> bool:
        """Check whether the compilation runs any code, so that a device of the target's kind must
        be connected."""
        return self.tunes or self.verify

    def to_dict(self) -> dict[str, Any]:
        """Return the options as a JSON object; `from_dict` is the inverse."""
        fields: dict[str, Any] = codec.encode(self)
        return fields

    def shared(self, count: int) -> CompileOptions:
        """Return the options for each of `count` models that share the trials and the budget in
        equal parts."""
        budget = None if self.budget_s is None else self.budget_s / count
        trials = None if self.trials is None else -(-self.trials // count)
        return dataclasses.replace(self, budget_s=budget, trials=trials)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> CompileOptions:
        """Return the options that a JSON object represents. Raises UsageError for an unknown field
        or a value of the wrong type."""
        fields = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(raw) - fields)
        if unknown:
            raise UsageError(
                f"unknown option {', '.join(unknown)}",
                hint=f"options: {', '.join(sorted(fields))}; others may need a newer Farrier",
            )
        try:
            return cls(**raw)
        except (TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"malformed options: {error}") from error


def _sizes(raw: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): _whole(size, f"the size of {name}") for name, size in raw.items()}


def _plain(dim: Any) -> Any:
    """Return a dim unchanged, except that an integer of numpy becomes Python's."""
    return operator.index(dim) if hasattr(dim, "__index__") else dim


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{what} is {value!r}, and no text")
    return value


def _whole(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{what} is {value!r}, and no whole number") from None


def _real(value: Any, what: str) -> float:
    try:
        return operator.index(value) if hasattr(value, "__index__") else float(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{what} is {value!r}, and no number") from None


def parse_budget(text: str) -> float:
    """Parse a duration to seconds: `"90"`, `"90s"`, `"2m"` or `"1h"`. Raises UsageError."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
        if not 0 <= seconds < float("inf"):
            raise ValueError
    except ValueError:
        raise UsageError(
            f"cannot read the budget {text!r}", hint="--budget 60s, 5m or 1h"
        ) from None
    return seconds
