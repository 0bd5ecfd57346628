"""The verb `farrier doctor`: check every connection from here to each device."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from farrier.cli.remote import ServerOption
from farrier.options import parse_budget
from farrier.sdk.client import Client
from farrier.sdk.doctor import CHECKS, Finding, of_service


def doctor(
    device: Annotated[
        list[str] | None, typer.Option("--device", help="Check only this device; repeatable.")
    ] = None,
    wait: Annotated[
        str, typer.Option(help="Time to wait for each device to measure: 60s, 5m.")
    ] = "60s",
    server: ServerOption = None,
) -> None:
    """Check the farm: its API, your token and the devices. On the server, also check Redis, blob
    store, broker, and a measurement on each device. Exit with 1 if a check fails."""
    names, wait_s = set(device or ()), parse_budget(wait)
    with Client(server, patience_s=0) as client:
        findings = [_shown(finding) for finding in of_service(client, names)]
    for entry in metadata.entry_points(group=CHECKS):
        findings += [_shown(finding) for finding in entry.load()(names, wait_s)]
    wrong = sum(not finding.ok for finding in findings)
    typer.echo(f"{wrong} of {len(findings)} checks failed" if wrong else "all is well")
    raise typer.Exit(int(wrong > 0))


def _shown(finding: Finding) -> Finding:
    typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.what}: {finding.detail}")
    if finding.hint:
        typer.echo(f"      hint: {finding.hint}")
    return finding
