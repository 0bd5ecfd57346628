"""The role of a backend that runs code on this machine, for measurements and for inference
sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from farrier.artifact.code import ModelCode
    from farrier.measure import Runner
    from farrier.targets.target import Target


class Loaded(Protocol):
    """A model loaded into this process."""

    @property
    def entry(self) -> Callable[[Any, int], int]:
        """The function that runs the model. Its arguments are a ctypes array with the addresses of
        the model's arguments, and `context`. It returns 0, a positive error code, or -1 - n if
        check n of the manifest failed."""
        ...

    @property
    def context(self) -> int:
        """The value to pass as the last argument of `entry`."""
        ...

    @property
    def most_workspace(self) -> int | str:
        """The largest workspace that any call needs, in bytes: an expression in the manifest's dims
        and in capacities (the upper limits of data-dependent sizes)."""
        ...

    def workspace_bytes(self, sizes: int) -> int:
        """Return the bytes of workspace that a call needs. `sizes` is the address of an i64 array
        with the sizes of the dims."""
        ...

    def close(self) -> None:
        """End the threads of the model and free its memory."""
        ...


class Running(Protocol):
    """The execution of the backend's code on this machine, if the machine can run it.

    Callers use `why_not_here` before `load` and `runner`, also for artifacts of other versions of
    Farrier. These methods import no compiler.
    """

    def why_not_here(self, arch: str, cpu: str, features: Sequence[str]) -> str:
        """Return the reason why this machine cannot run code for targets with that `Target.arch`,
        `cpu` and `features`, as a clause for a message; "" if it can run the code."""
        ...

    def why_not_measured_here(self, target: Target) -> str:
        """Return the reason why times measured on this machine do not apply to `target`, as a
        clause for a message; "" if they apply. By default they apply to every target whose code
        runs here."""
        return self.why_not_here(target.arch, target.cpu, target.features)

    def runner(self) -> Runner:
        """Return a runner that measures on this machine."""
        ...

    @property
    def code_kinds(self) -> frozenset[str]:
        """The kinds of code objects that `load` accepts."""
        ...

    def threads(self, part: Mapping[str, Any]) -> tuple[int, int]:
        """Return the number of host threads that suits a model best, and the largest number that it
        can use. `part` is the backend's part of the model's manifest. Raises ArtifactError if the
        part is damaged."""
        return 1, 1

    def traces(
        self, code: ModelCode
    ) -> tuple[Mapping[str, Sequence[Mapping[str, Any]]], Sequence[str]]:
        """Return a timeline of each kernel by symbol, if the timeline is known without running the
        kernel, and the names of its lanes. Events have Chrome's trace format, with the lane as
        `tid`. By default there are none."""
        return {}, ()

    def load(self, code: ModelCode, threads: int) -> Loaded:
        """Load a model into this process, to run with `threads` threads. Raises ArtifactError if
        the code is damaged."""
        ...
