"""Report kernels that run element by element on one thread, with the reason and their share of the
time.

A space states the reason (`Space.slow_reason`); the user is warned if such kernels take a
noticeable part of the model's time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from farrier.compile_pool.choose import ScheduledTask

# The share of a model's time from which a slow kernel is reported.
NOTICEABLE = 0.02
# The seconds below which calls are lost in the overhead of calling the model.
_LEAST_S = 5e-6


@dataclasses.dataclass(frozen=True, slots=True)
class SlowKernel:
    """A kernel without a fast schedule. `origin` names the model's nodes of its first call; `share`
    is its fraction of the time of all kernels, as measured or predicted."""

    kernel: str
    origin: str
    reason: str
    share: float

    def __str__(self) -> str:
        node = f" (node {self.origin!r})" if self.origin else ""
        share = f"{self.share:.0%} of the model"
        return f"{self.kernel}{node} takes {share} and runs slowly: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in the form of the compilation report."""
        return {**dataclasses.asdict(self), "share": round(self.share, 4)}


def slow_kernels(choices: Mapping[str, ScheduledTask]) -> list[SlowKernel]:
    """Return the kernels for which a reason is known why they are slow, if they take a noticeable
    part of the model's time. The kernels with the largest parts come first."""
    seconds = {key: choice.seconds for key, choice in choices.items()}
    total = sum(seconds.values()) or 1.0
    slow = [
        SlowKernel(choice.task.name, choice.origin, reason, seconds[key] / total)
        for key, choice in choices.items()
        if (reason := choice.slow_reason) is not None
        and seconds[key] >= max(NOTICEABLE * total, _LEAST_S)
    ]
    return sorted(slow, key=lambda kernel: -kernel.share)


def slow_of_forms(forms: Iterable[Mapping[str, ScheduledTask]]) -> list[list[SlowKernel]]:
    """Return the slow kernels of each form of a model, given the schedules of each form: first the
    form for all sizes, then those specialized to a size. A node that one form reports is not
    reported by later ones."""
    reported: set[str] = set()
    lists = []
    for choices in forms:
        kernels = [kernel for kernel in slow_kernels(choices) if kernel.origin not in reported]
        reported |= {kernel.origin for kernel in kernels if kernel.origin}
        lists.append(kernels)
    return lists


def messages(kernels: Sequence[SlowKernel]) -> list[str]:
    """Return one line for each kernel and, if there are several, a line with their total."""
    lines = list(map(str, kernels))
    if len(kernels) > 1:
        share = sum(kernel.share for kernel in kernels)
        count = len(kernels)
        lines.append(f"{count} kernels without a fast schedule take {share:.0%} of the model")
    return lines
