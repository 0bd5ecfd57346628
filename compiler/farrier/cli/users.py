"""The verbs that manage the users of a farm through its server: users list, me, add, rotate,
remove.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from farrier.cli.remote import PANEL, ServerOption
from farrier.cli.show import print_table
from farrier.sdk.client import Client
from farrier.sdk.users import User

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]


def register(app: typer.Typer) -> None:
    """Add the verbs `users …` to the app."""
    group = typer.Typer(rich_markup_mode=None)
    group.callback(invoke_without_command=True)(users)
    group.command("list")(list_users)
    for verb in (me, add, rotate, remove):
        group.command(verb.__name__)(verb)
    app.add_typer(group, name="users", rich_help_panel=PANEL)


def users(context: typer.Context, server: ServerOption = None) -> None:
    """List the users that have tokens of their own. This is for operators. Admins can also add,
    rotate and remove tokens; on the farm's machine, `farrier tokens` does the same."""
    if context.invoked_subcommand is None:
        list_users(server)


def list_users(server: ServerOption = None) -> None:
    """List the users, as `farrier users` does."""
    with Client(server) as client:
        accounts = client.users.list()
    table = Table("name", "role", "group", "since", "expires", box=None)
    for user in accounts:
        table.add_row(user.name, user.role, user.group, _day(user.created), _end(user))
    print_table(table)


def me(server: ServerOption = None) -> None:
    """Show your name, role and group, and when your token expires."""
    with Client(server) as client:
        user = client.users.me()
    group = f", group {user.group}" if user.group else ""
    typer.echo(f"{user.name}: {user.role}{group}, expires {_end(user)}")


def add(
    name: NameArgument,
    role: Annotated[str, typer.Option(help="Role of the user: user, operator or admin.")] = "user",
    group: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Group of the user. Members of a group see each other's jobs and results.",
        ),
    ] = "",
    expires: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="Expiry of the token: a duration (12h, 30d, 8w), a date "
            "in UTC (2030-01-31), or never.",
        ),
    ] = "never",
    server: ServerOption = None,
) -> None:
    """Create a token for a user. The token is shown only this once."""
    with Client(server) as client:
        typer.echo(client.users.add(name, role=role, group=group, expires=expires))


def rotate(
    name: NameArgument,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Expiry of the new token, as for `add`; default: that of the old token.",
        ),
    ] = None,
    server: ServerOption = None,
) -> None:
    """Replace a user's token by a new one. The old token and its sessions become invalid."""
    with Client(server) as client:
        typer.echo(client.users.rotate(name, expires=expires))


def remove(name: NameArgument, server: ServerOption = None) -> None:
    """Revoke a user's token. The user's jobs stay, under the user's name."""
    with Client(server) as client:
        client.users.remove(name)
    typer.echo(f"{name} removed")


def _day(moment: float | None) -> str:
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def _end(user: User) -> str:
    if user.expires is None:
        return "never"
    return f"{_day(user.expires)}{' (expired)' if user.expired else ''}"
