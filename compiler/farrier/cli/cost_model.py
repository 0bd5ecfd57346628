"""The commands for the farm's cost model: cost-model show, cost-model rollback."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from farrier.cli.remote import PANEL, ServerOption
from farrier.cli.show import print_table
from farrier.sdk.client import Client


def register(app: typer.Typer) -> None:
    """Add the commands `cost-model …` to the app."""
    group = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
    group.callback()(cost_model)
    group.command("show")(show)
    group.command("rollback")(rollback)
    app.add_typer(group, name="cost-model", rich_help_panel=PANEL)


def cost_model() -> None:
    """Show the farm's cost model, or use an older version. The measurements of all jobs train
    it."""


def show(server: ServerOption = None) -> None:
    """Show the stored versions, and the outcome of the last training."""
    with Client(server) as client:
        _print(client.cost_model())


def rollback(
    to: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Number of the version; 0 is the built-in model. "
            "Default: the version before the one in use.",
        ),
    ] = None,
    server: ServerOption = None,
) -> None:
    """Use an older version from the next job on. A later version replaces it only if it is
    better."""
    with Client(server) as client:
        _print(client.roll_back_cost_model(to))


def _print(document: Mapping[str, Any]) -> None:
    table = Table("version", "made", "records", "tasks", "pairs in order", "regret", "", box=None)
    for version in document["versions"]:
        training = version["training"]
        figures = training["figures"]["trained"]
        table.add_row(
            str(version["number"]),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(version["created"])),
            str(training["records"]),
            str(training["tasks"]),
            f"{figures['pairs']:.1%}",
            f"{figures['regret']:.1%}",
            "in use" if version["in_use"] else "",
        )
    if document["versions"]:
        print_table(table)
    if not document["in_use"]:
        typer.echo("jobs begin with the built-in cost model")
    last = document["last"]
    for version in document["versions"]:
        if version["in_use"] and version["training"] != last:
            _print_unseen(f"version {version['number']}", version["training"]["unseen"])
    if last is None:
        typer.echo(
            "no model has been trained yet: `farrier trainer` trains one, and "
            "`farrier up` starts a trainer"
        )
        return
    typer.echo(f"last training: {last['reason']}")
    _print_unseen("the last training", last["unseen"])
    if last["set_aside"]:
        typer.echo(f"{last['set_aside']} records are set aside:")
    for version in last["shown"]:
        typer.echo(
            f"  {version['task']} on {version['device'] or 'this machine'}: {version['reason']}"
        )
    for task, why in last["damaged"].items():
        typer.echo(f"  the definition of {task} cannot be read: {why}")


def _print_unseen(what: str, unseen: Mapping[str, Any]) -> None:
    """Print, for each device class, the evaluation of a model that was trained without that
    class."""
    if not unseen:
        return
    typer.echo(f"{what}, evaluated on a device class that was left out of training:")
    table = Table(
        Column("class", no_wrap=True), "ranking", "pairs in order", "regret", "top 5", box=None
    )
    for device_class, rankings in unseen.items():
        for name, figures in rankings.items():
            shares = (figures["pairs"], figures["regret"], figures["top5"])
            table.add_row(
                Text(device_class or "(none)"), Text(name), *(f"{share:.1%}" for share in shares)
            )
    print_table(table)
