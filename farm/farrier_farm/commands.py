"""The verb that this package adds to the `farrier` command: `up`."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def up(
    port: Annotated[int | None, typer.Option(help="Of the REST API [8440].")] = None,
    broker_port: Annotated[int | None, typer.Option(help="Of the broker [8441].")] = None,
    home: Annotated[str | None, typer.Option(help="Where everything is kept [~/.farrier].")] = None,
) -> None:
    """Start the whole service on this machine: Valkey, API, broker, a worker, a device agent."""
    import dataclasses
    from pathlib import Path

    from farrier_farm.settings import Settings
    from farrier_farm.up import run

    settings = Settings.from_environment()
    given: dict[str, Any] = {
        "api_port": port,
        "broker_port": broker_port,
        "home": None if home is None else Path(home).expanduser().absolute(),
    }
    settings = dataclasses.replace(settings, **{k: v for k, v in given.items() if v is not None})
    raise SystemExit(run(settings, announce=typer.echo))
