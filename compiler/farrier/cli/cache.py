"""The commands that manage the cache of `InferenceSession`: cache show, cache clear, cache
verify.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from farrier.cache.settings import OFF, CacheSettings
from farrier.errors import NotFoundError

if TYPE_CHECKING:
    from farrier.cache.store import Entry, Store

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to the app, under the help panel `panel`."""
    group = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
    group.callback()(cache)
    for verb in (show, clear, verify):
        group.command(verb.__name__)(verb)
    app.add_typer(group, name="cache", rich_help_panel=panel)


def cache() -> None:
    """Show, clear or verify the cache of compiled models. InferenceSession fills this cache."""


def show() -> None:
    """List the models in the cache, the most recently used first."""
    store = _store()
    entries = store.entries()
    table = Table(
        "model",
        "target",
        Column("size", justify="right"),
        Column("used", justify="right"),
        box=None,
        pad_edge=False,
    )
    for entry in entries:
        table.add_row(
            escape(_model(entry)), escape(entry.target), _size(entry.nbytes), _ago(entry.used)
        )
    if entries:
        Console(highlight=False, soft_wrap=True).print(table)
    limit = _size(store.limit_bytes) if store.limit_bytes else "no limit"
    total = _size(sum(entry.nbytes for entry in entries))
    typer.echo(f"{len(entries)} models, {total} of {limit}, in {store.folder}", err=True)


def clear() -> None:
    """Remove the whole cache; running sessions continue."""
    store = _store()
    count = len(store.entries())
    typer.echo(f"removed {count} models, {_size(store.clear())}, from {store.folder}", err=True)


def verify() -> None:
    """Check the hashes of cached models. Remove damaged models."""
    store = _store()
    damaged = store.verify()
    for entry, reason in damaged:
        typer.echo(f"removed {_model(entry)}: {reason}")
    typer.echo(f"{len(store.entries())} models are whole, {len(damaged)} were not", err=True)


def _store() -> Store:
    """Return the cache's store of models. Raises NotFoundError if the cache is off."""
    settings = CacheSettings.from_environment()
    if settings.folder is None:
        raise NotFoundError(
            f"the cache is switched off: FARRIER_CACHE is {OFF}", hint="unset FARRIER_CACHE"
        )
    from farrier.cache.store import Store  # It imports NumPy, which other commands do without.

    return Store(settings.folder, settings.limit_bytes)


def _model(entry: Entry) -> str:
    return Path(entry.model).name or entry.key[:12]


def _size(nbytes: int) -> str:
    """Return a number of bytes as text for people: `8.59 GB`, `0.02 MB`."""
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.2f} MB"


def _ago(then: float) -> str:
    seconds = max(time.time() - then, 0)
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
