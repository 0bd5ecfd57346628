"""The `farrier` command with all its verbs.

The compiler's own verbs are in `local` and `remote`; server packages add theirs through the entry
points `farrier.commands`, so that a machine which only compiles installs nothing of a server.
"""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

import farrier
from farrier.cli import audit, cache, cost_model, local, records, remote, targets, users, webhooks
from farrier.cli.doctor import doctor

_ROLE_ORDER = (
    *("up", "serve", "broker", "worker", "builder", "trainer", "probe"),
    *("tokens", "keys", "backup", "restore"),
)


def build() -> typer.Typer:
    """Return the command with every verb that is installed."""
    app = typer.Typer(
        name="farrier",
        help="Fit deep-learning models to the hardware they run on.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    local.register(app)
    app.command("targets", rich_help_panel=local.PANEL)(targets.targets)
    cache.register(app, local.PANEL)
    remote.register(app)
    records.register(app)
    cost_model.register(app)
    users.register(app)
    webhooks.register(app)
    app.command("audit", rich_help_panel=remote.PANEL)(audit.audit)
    app.command("doctor", rich_help_panel=remote.PANEL)(doctor)
    entries = {entry.name: entry for entry in metadata.entry_points(group="farrier.commands")}
    for name in _ROLE_ORDER:
        if name in entries:
            verb = entries[name].load()
            if isinstance(verb, typer.Typer):
                app.add_typer(verb, name=name, rich_help_panel="Roles")
            else:
                app.command(name, rich_help_panel="Roles")(verb)
    return app


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"farrier {farrier.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_tell_version, help="Print the version."),
    ] = False,
) -> None:
    """Handle the options that precede any verb."""
