"""The verb `farrier explore`: compare configurations of accelerators by speed and area."""

from __future__ import annotations

import contextlib
import enum
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from farrier.cli.hardware import accelerator_of
from farrier.cli.show import ProgressView, ms, print_table
from farrier.errors import UsageError
from farrier.files.mapped import check_is_file
from farrier.progress import Event, Listener, TrialsMeasured, Warned

if TYPE_CHECKING:
    from farrier.hardware.explore import Exploration, Result
    from farrier.targets.dae.description import Accelerator


class Area(enum.StrEnum):
    """The source of the area of an accelerator: its description alone, synthesis by yosys as well,
    or also placement, which yields the clock too."""

    DESCRIPTION = "description"
    YOSYS = "yosys"
    PLACE = "place"


def explore(
    shapes: Annotated[
        list[str],
        typer.Argument(
            help="Accelerators to compare: names such as dae:small, or files that describe them."
        ),
    ],
    model: Annotated[list[Path], typer.Option(help="Quantized model to compile; repeatable.")],
    output: Annotated[Path, typer.Option("-o", "--out", help="Folder for the results.")],
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="Values of a field, such as port.bytes=4,8, or of fields that are equal, "
            "such as matrix.inner,matrix.outer=8,16; repeatable. All combinations are "
            "compared."
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="Number of candidates to measure for each shape and model."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    area: Annotated[
        Area,
        typer.Option(
            help="Source of the area. yosys: also count the cells of an ECP5, which takes "
            "about a minute for each shape and needs farrier[hardware]. place: also find "
            "the clock rate, by nextpnr with three seeds."
        ),
    ] = Area.DESCRIPTION,
    server: Annotated[
        str | None,
        typer.Option(
            help="Compile as jobs of a farm, whose dashboard shows the results; URL of its server."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name on the dashboard; default: the name of the folder."),
    ] = None,
    private: Annotated[
        bool,
        typer.Option(
            "--private", help="Keep the exploration and its jobs on the farm to yourself."
        ),
    ] = False,
) -> None:
    """Compare shapes of accelerators by cycles and area.

    The cycles are those of the models. Each result is stored in the folder as soon as it is known,
    and a second run continues from there.
    """
    from farrier.hardware.explore import Exploration
    from farrier.hardware.published import Publication
    from farrier.sdk.client import Client

    if server is None and (private or name is not None):
        option = "--private" if private else "--name"
        raise UsageError(f"{option} is for an exploration on a farm", hint="add --server URL")
    for each in model:
        check_is_file(each)
    distinct = _shapes(shapes, vary or [])
    with Client(server) if server else contextlib.nullcontext() as client:
        shown_name = name or output.resolve().name or "exploration"
        publication = Publication(client, shown_name, private) if client else None
        exploration = Exploration(
            distinct, model, output, trials=trials, seed=seed, publication=publication
        )
        if exploration.url:
            typer.echo(f"the results are shown at {exploration.url}", err=True)
        if area is not Area.DESCRIPTION:
            for shape, counted in exploration.synthesize(places=area is Area.PLACE):
                typer.echo(f"{shape.name}: {_counted(counted)}", err=True)
        for number, result in enumerate(exploration.run(_listening), 1):
            typer.echo(f"{number}/{len(exploration.candidates)} {_line(result)}", err=True)
    _report(exploration, output)


def _shapes(names: list[str], vary: list[str]) -> list[Accelerator]:
    """Return the accelerators to compare. Raises UsageError."""
    from farrier.hardware.shapes import parse_variation, varied

    variations = [parse_variation(text) for text in vary]
    bases = []
    for name in names:
        try:
            bases.append(accelerator_of(name))
        except UsageError as error:
            raise UsageError(f"the shape {name}: {error.message}", hint=error.hint) from None
    distinct, refused = varied(bases, variations)
    if not distinct:
        raise UsageError(f"no shape can work: {refused[0]}", hint="change the values of --vary")
    for reason in refused:
        typer.echo(f"left out: {reason}", err=True)
    return distinct


@contextlib.contextmanager
def _listening() -> Iterator[Listener]:
    """Yield a listener that shows the trials and the warnings of a compilation."""
    with ProgressView() as view:

        def listener(event: Event) -> None:
            if isinstance(event, TrialsMeasured | Warned):
                view(event)

        yield listener


def _counted(figures: dict[str, Any]) -> str:
    """Return the results of synthesis as text: the number of each kind of cell and, after a
    placement, the clock rates in MHz."""
    words = [f"{count:,} {cell}" for cell, count in figures.items() if cell not in ("mhz", "part")]
    if figures.get("part") == "":
        words.append("which fits no ECP5")
    elif "mhz" in figures:
        clocks = " / ".join(f"{clock:.1f}" for clock in figures["mhz"])
        words.append(f"{clocks} MHz on an {figures['part']}")
    return ", ".join(words)


def _line(result: Result) -> str:
    figures = result.figures
    about = f"{result.candidate.shape.name}, {result.candidate.model.name}: "
    if not figures.kernels:
        return f"{about}nothing runs there: {figures.reason}"
    kept = ", kept from an earlier run" if result.is_kept else ""
    return f"{about}{figures.cycles:,} cycles, {figures.share:.1%} of multiply-adds{kept}"


def _report(exploration: Exploration, folder: Path) -> None:
    """Print the results. Raises UsageError for a model that runs on none of the accelerators."""
    rows = exploration.rows()
    areas = [name for name in rows[0]["area"] if name != "scratchpad_bytes"]
    has_clocks = any("mhz" in row for row in rows)
    placed = ("MHz", "ms placed") if has_clocks else ()
    columns = ("cycles", "ms", "with host", "multiply-adds", "KiB", *areas, *placed)
    table = Table("model", "shape", *(Column(name, justify="right") for name in columns), "front")
    table.box = None
    for row in sorted(rows, key=lambda row: (row["model"], row["cycles"])):
        table.add_row(row["model"], row["shape"], *_cells(row, areas), "*" * row["on_front"])
    print_table(table)
    for name in ("pareto.json", "pareto.svg"):
        typer.echo(folder / name)
    for model in dict.fromkeys(row["model"] for row in rows):
        of_model = [row for row in rows if row["model"] == model]
        if not any(row["kernels"] for row in of_model):
            raise UsageError(
                f"none of the shapes runs a kernel of {model}: {of_model[0]['reason']}",
                hint="they run convolutions and products of a model quantized to bytes",
            )


def _cells(row: dict[str, Any], areas: list[str]) -> list[str]:
    latency = row["latency_ms"]
    return [
        f"{row['cycles']:,}",
        ms(row["device_ms"]),
        "" if latency is None else ms(latency),
        f"{row['share']:.1%}",
        f"{row['area']['scratchpad_bytes'] / 1024:,.10g}",
        *(f"{row['area'][name]:,}" for name in areas),
        *((f"{statistics.median(row['mhz']):.1f}", ms(row["placed_ms"])) if "mhz" in row else ()),
    ]
