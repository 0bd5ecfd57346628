"""The `farrier` command: its verbs, and how errors leave it.

The compiler's own verbs stand in `local` and `remote`; the server roles add theirs through the
entry points `farrier.commands`, so that a machine which only compiles installs nothing of a server.
"""

from __future__ import annotations

import sys
from importlib import metadata

import typer
from rich.console import Console

from farrier.cli import local, remote
from farrier.errors import FarrierError

_ROLE_ORDER = ("up", "serve", "broker", "worker")


def build() -> typer.Typer:
    """The command with every verb that is installed."""
    app = typer.Typer(
        name="farrier",
        help="Fit deep-learning models to the hardware they run on.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    local.register(app)
    remote.register(app)
    entries = {entry.name: entry for entry in metadata.entry_points(group="farrier.commands")}
    for name in sorted(entries, key=_ROLE_ORDER.index):
        app.command(name, rich_help_panel="Roles")(entries[name].load())
    return app


def main() -> None:
    """Runs the command and exits: 0, an error's own code, 130 after Ctrl-C."""
    try:
        build()()
    except FarrierError as error:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print(f"error: {error.message}", markup=False, style="red")
        if error.hint:
            console.print(f"  hint: {error.hint}", markup=False)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
