"""The subcommands that this package adds to the command `farrier`: `worker`, `builder` and
`trainer`."""

from __future__ import annotations

from typing import Annotated

import typer


def worker(
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="The number of jobs to run at once [1].")
    ] = None,
) -> None:
    """Run jobs from the farm's queue. Each runs in a process of its own."""
    import dataclasses

    from farrier_device import logs
    from farrier_farm.settings import Settings
    from farrier_worker.main import run

    settings = Settings.from_environment()
    logs.set_up("worker", settings.log)
    if jobs is not None:
        settings = dataclasses.replace(settings, jobs_at_once=jobs)
    raise SystemExit(run(settings))


def builder(
    builds: Annotated[
        int | None,
        typer.Option(
            "--builds", min=1, help="The number of modules to compile at once [one per core]."
        ),
    ] = None,
) -> None:
    """Compile kernels for the jobs of the farm's workers. A builder only needs Redis."""
    import dataclasses

    from farrier_device import logs
    from farrier_farm.settings import Settings
    from farrier_worker.builder import run

    settings = Settings.from_environment()
    logs.set_up("builder", settings.log)
    if builds is not None:
        settings = dataclasses.replace(settings, builds_at_once=builds)
    raise SystemExit(run(settings))


def trainer(
    once: Annotated[
        bool, typer.Option("--once", help="Train now, print the result, and end.")
    ] = False,
) -> None:
    """Train the farm's cost model from time to time. It learns from the records of all jobs."""
    from farrier_device import logs
    from farrier_farm.settings import Settings
    from farrier_worker.trainer import run, run_once

    settings = Settings.from_environment()
    logs.set_up("trainer", settings.log)
    if once:
        typer.echo(run_once(settings))
        return
    raise SystemExit(run(settings))
