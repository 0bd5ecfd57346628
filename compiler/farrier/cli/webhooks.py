"""The commands `farrier webhooks`: manage the URLs to which the farm posts events."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from farrier.cli.remote import PANEL, ServerOption
from farrier.cli.show import print_table
from farrier.sdk.client import Client

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the webhook.")]


def register(app: typer.Typer) -> None:
    """Add the commands `webhooks …` to the app."""
    group = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
    group.callback()(webhooks)
    group.command("add")(add)
    group.command("list")(list_)
    group.command("remove")(remove)
    group.command("ping")(ping)
    app.add_typer(group, name="webhooks", rich_help_panel=PANEL)


def webhooks() -> None:
    """Manage the URLs to which the farm posts signed events. Events are those of your jobs and, for
    operators, those of devices."""


def add(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="URL to call, http or https, of a public host.")
    ],
    event: Annotated[
        list[str] | None,
        typer.Option(
            help="Event to send: job.succeeded, device.offline, …; repeatable. "
            "Default: all events of jobs."
        ),
    ] = None,
    server: ServerOption = None,
) -> None:
    """Send events to a URL. The secret that signs the requests is shown only now."""
    with Client(server) as client:
        hook = client.add_webhook(url, event or ())
    typer.echo(f"{hook.id} receives {', '.join(hook.events)}", err=True)
    typer.echo(hook.secret)


def list_(server: ServerOption = None) -> None:
    """List your webhooks, with their last deliveries."""
    table = Table("webhook", "url", "events", "delivered", "given up", "last error", box=None)
    with Client(server) as client:
        for hook in client.webhooks():
            counts = str(hook.delivered), str(hook.failed)
            events = Text(", ".join(hook.events))
            table.add_row(hook.id, Text(hook.url), events, *counts, Text(hook.last_error))
    print_table(table)


def remove(webhook: IdArgument, server: ServerOption = None) -> None:
    """Stop sending events to a URL."""
    with Client(server) as client:
        client.remove_webhook(webhook)
    typer.echo(f"{webhook} removed")


def ping(webhook: IdArgument, server: ServerOption = None) -> None:
    """Send the event `ping` to a URL. `list` shows whether it arrived."""
    with Client(server) as client:
        client.ping_webhook(webhook)
    typer.echo(f"sent a ping to {webhook}")
