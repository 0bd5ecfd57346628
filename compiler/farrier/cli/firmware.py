"""The verb `farrier firmware`: write the program with which a board measures for a farm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def firmware(
    board: Annotated[str, typer.Argument(help="Name of a board without an operating system.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder to write; default: the name of the board."),
    ] = None,
) -> None:
    """Write the program of a board that measures for a farm. The board is connected to an agent
    (`farrier-device --serial`)."""
    from farrier.cli.export import write_files
    from farrier.targets import parse_target

    target = parse_target(board)
    write_files(target.backend.firmware(board), output or Path(board))
