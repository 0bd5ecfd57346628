"""The commands that this package adds to `farrier`: `serve` and `broker`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HostOption = Annotated[
    str | None, typer.Option(help="Address to listen on [127.0.0.1]; any other needs TLS.")
]
CertOption = Annotated[
    Path | None, typer.Option(help="PEM file of the certificate [env FARRIER_TLS_CERT].")
]
KeyOption = Annotated[Path | None, typer.Option(help="PEM file of its key [env FARRIER_TLS_KEY].")]


def serve(
    host: HostOption = None,
    port: Annotated[int | None, typer.Option(help="The port of the REST API [8440].")] = None,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
) -> None:
    """Serve the REST API. It is for uploads, jobs, events, artifacts and devices."""
    from farrier_farm.settings import Settings
    from farrier_server.serve import run_api

    settings = Settings.from_environment()
    run_api(settings, host=host, port=port, tls_cert=tls_cert, tls_key=tls_key)


def broker(
    host: HostOption = None,
    port: Annotated[int | None, typer.Option(help="The port of the broker [8441].")] = None,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
) -> None:
    """Serve the broker, to which devices connect for work."""
    from farrier_farm.settings import Settings
    from farrier_server.serve import run_broker

    settings = Settings.from_environment()
    run_broker(settings, host=host, port=port, tls_cert=tls_cert, tls_key=tls_key)
