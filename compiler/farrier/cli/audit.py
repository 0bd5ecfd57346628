"""The verb `farrier audit`: show the audit log of the farm."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from farrier.cli.remote import ServerOption
from farrier.cli.show import print_table
from farrier.options import parse_budget
from farrier.sdk.client import Client


def audit(
    user: Annotated[str, typer.Option(help="Show only entries of this user.")] = "",
    action: Annotated[
        str,
        typer.Option(
            help="Show only this action, such as jobs.cancel, or jobs for all actions on jobs."
        ),
    ] = "",
    about: Annotated[
        str, typer.Option("--object", help="Show only entries about the object with this id.")
    ] = "",
    outcome: Annotated[
        str, typer.Option(help="Show only entries with this outcome: ok, forbidden, …")
    ] = "",
    since: Annotated[
        str | None, typer.Option(help="Show only entries that are not older than this: 90s, 24h.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Largest number of entries to show, the newest ones.")
    ] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.")
    ] = False,
    server: ServerOption = None,
) -> None:
    """Show who changed what on the farm, when and from where. Only for operators."""
    begin = 0.0 if since is None else time.time() - parse_budget(since)
    wanted = {"user": user, "action": action, "object": about, "outcome": outcome}
    table = Table("time", "user", "role", "from", "action", "object", "outcome", box=None)
    with Client(server) as client:
        for entry in itertools.islice(client.audit(since=begin, **wanted), limit):
            if as_json:
                typer.echo(json.dumps(dataclasses.asdict(entry)))
                continue
            words = (entry.user, entry.role, entry.address, entry.action, entry.object)
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at))
            table.add_row(when, *map(Text, words), Text(entry.outcome))
    if not as_json:
        print_table(table)
