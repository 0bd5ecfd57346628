"""The verb `farrier export`: write an artifact as files for programs in other languages."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from farrier.targets.exporting import Exported


def export(
    artifact: Annotated[Path, typer.Argument(help="The .farrier file.")],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="Form of the files; c: a library and its header; elf, uf2: a program for a board.",
        ),
    ] = "c",
    board: Annotated[str, typer.Option(help="Board on which the program runs.")] = "",
    name: Annotated[
        str, typer.Option(help="Start of the names of the C functions; default: the model's name.")
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder to write; default: the path of the artifact without .farrier.",
        ),
    ] = None,
) -> None:
    """Export a model as a C library or a program for a board. Print the memory that it takes."""
    from farrier.runtime.artifact import load

    write_files(load(artifact).export(form, board, name), output or artifact.with_suffix(""))


def write_files(exported: Exported, folder: Path) -> None:
    """Write the files of an export to a folder, and print their names and notes about them."""
    from farrier.files.atomic import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    for each, content in exported.files.items():
        write_atomically(folder / each, functools.partial(_write, content))
        typer.echo(folder / each)
    for note in exported.notes:
        typer.echo(note, err=True)


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)
