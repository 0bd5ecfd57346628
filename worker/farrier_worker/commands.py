"""The verb that this package adds to the `farrier` command: `worker`."""

from __future__ import annotations

from typing import Annotated

import typer


def worker(
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Run so many side by side [1].")
    ] = None,
) -> None:
    """Run jobs from the farm's queue, each in a process of its own."""
    import dataclasses

    from farrier_device import logs
    from farrier_farm.settings import Settings
    from farrier_worker.main import run

    settings = Settings.from_environment()
    logs.set_up("worker", settings.log)
    if jobs is not None:
        settings = dataclasses.replace(settings, jobs_at_once=jobs)
    raise SystemExit(run(settings))
