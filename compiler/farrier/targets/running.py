"""The role of a backend that runs its code on this machine: to measure it, and for sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from farrier.artifact.code import ModelCode
    from farrier.measure import Runner
    from farrier.targets.target import Target


class Loaded(Protocol):
    """A model's code in this process, ready to be called."""

    @property
    def entry(self) -> Callable[[Any, int], int]:
        """Run the model: take the addresses of its arguments, as a ctypes array, and `context`;
        return 0, a positive code for a failure, or -1 - n where check n of the manifest failed."""
        ...

    @property
    def context(self) -> int:
        """The last argument of the entry."""
        ...

    @property
    def most_workspace(self) -> int | str:
        """The bytes of workspace at most, an extent in the manifest's dims and capacities."""
        ...

    def workspace_bytes(self, sizes: int) -> int:
        """Return the bytes of workspace that a call needs, for the sizes (i64) at an address."""
        ...

    def close(self) -> None:
        """End its threads and let go of its memory."""
        ...


class Running(Protocol):
    """Runs code for the backend's targets where this machine can.

    It is asked before `load` and `runner` are used, for artifacts of any version too; no compiler
    is imported for it.
    """

    def why_not_here(self, arch: str, cpu: str, features: Sequence[str]) -> str:
        """Return the reason why this machine cannot run code for targets with that `Target.arch`,
        `cpu` and `features`: a clause, "" where it can."""
        ...

    def why_not_measured_here(self, target: Target) -> str:
        """Return the reason why what this machine measures says nothing of a target: a clause, ""
        if it is about that target. By default it is about all whose code runs here."""
        return self.why_not_here(target.arch, target.cpu, target.features)

    def runner(self) -> Runner:
        """Return a runner that measures on this machine."""
        ...

    @property
    def code_kinds(self) -> frozenset[str]:
        """The kinds of code objects that `load` takes."""
        ...

    def threads(self, part: Mapping[str, Any]) -> tuple[int, int]:
        """Return how many threads of the host suit a model best, and how many it runs with at most.
        `part` is the backend's part of the model's manifest. Raises ArtifactError if it is
        damaged."""
        return 1, 1

    def traces(
        self, code: ModelCode
    ) -> tuple[Mapping[str, Sequence[Mapping[str, Any]]], Sequence[str]]:
        """Return what happens in kernels over time, by their symbols, if that is known without a
        run, and the names of the lanes: events of Chrome's trace format, whose `tid` is a lane.
        By default nothing is known."""
        return {}, ()

    def load(self, code: ModelCode, threads: int) -> Loaded:
        """Load a model into this process, with `threads` threads. Raises ArtifactError where the
        code is damaged."""
        ...
