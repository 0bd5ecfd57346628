"""The main function of a worker's process, which runs until a signal ends it."""

from __future__ import annotations

import resource
from collections.abc import Sequence

from farrier_farm.settings import Settings
from farrier_worker.role_lifecycle import run_role
from farrier_worker.supervisor import JOB_COMMAND, Supervisor


def run(settings: Settings, *, command: Sequence[str] = JOB_COMMAND) -> int:
    """Run a worker until SIGTERM or SIGINT, then drain: running jobs get `drain_s` seconds to end,
    and then return to the queue; a second signal returns them at once. Returns the exit code.

    Raises ServiceError if Redis cannot be reached at the start.
    """
    _allow_many_files()
    return run_role(
        "worker", settings, lambda farm, alive: Supervisor(farm, command=command, alive=alive)
    )


def _allow_many_files() -> None:
    """Raise the limit of open files of this process: a batch's files arrive as descriptors, and a
    model may have hundreds of inputs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
