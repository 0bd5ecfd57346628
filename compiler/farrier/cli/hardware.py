"""The verb `farrier hardware`: write a user-defined accelerator as Verilog, and check it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from farrier.errors import UsageError

if TYPE_CHECKING:
    from farrier.targets.dae.description import Accelerator

_MOST_DRIFT = 0.02


def hardware(
    target: Annotated[
        str,
        typer.Argument(
            help="Accelerator, by its name (dae:small) or in a file that describes it; or "
            "a kernel in KERNEL.py."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="Folder to write; default: the name of the accelerator or kernel."
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            help="Model whose kernels are run in Verilator and in the simulator, "
            "to compare the two."
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Run KERNEL.py on random arguments in Verilator and in the interpreter.",
        ),
    ] = False,
) -> None:
    """Write the Verilog of an accelerator or a kernel. This needs farrier[hardware]."""
    if target.endswith(".py"):
        if check is not None:
            raise UsageError(
                "--check is for accelerators",
                hint="use --verify to compare a kernel with the interpreter",
            )
        _kernel(Path(target), output, verify)
        return
    if verify:
        raise UsageError(
            "--verify is for kernels",
            hint="use --check MODEL to compare an accelerator with the simulator",
        )
    from farrier.targets.dae.description import to_toml
    from farrier.targets.dae.rtl.emit import verilog

    accelerator = accelerator_of(target)
    folder = output or Path(accelerator.name)
    texts = {f"{accelerator.name}.v": verilog(accelerator), "shape.toml": to_toml(accelerator)}
    _write(folder, texts)
    if check is not None:
        _check(accelerator, check)


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files to a folder, by their names, and print their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
        typer.echo(folder / name)


def _kernel(path: Path, output: Path | None, verify: bool) -> None:
    """Write the Verilog of a kernel, and print its pipelines; with `verify` exit with 1 if it
    differs from the interpreter."""
    from farrier.hardware.kernels.kernel import kernel_of
    from farrier.hardware.kernels.source import read_kernel

    kernel = kernel_of(read_kernel(path))
    folder = output or Path(path.stem)
    _write(folder, {f"{path.stem}.v": kernel.verilog()})
    table = Table("loops", "iterations", "a new one every", "cycles of one")
    for each in kernel.pipelines:
        loops = ", ".join(var for var, _ in each.region.loops) or "-"
        count = each.region.iterations
        interval = str(each.interval) if count > 1 else "-"
        table.add_row(loops, f"{count:,}", interval, str(each.depth))
    Console().print(table)
    typer.echo(f"{kernel.cycles:,} cycles")
    if verify:
        from farrier.hardware.kernels.lockstep import KernelHardware

        with tempfile.TemporaryDirectory(prefix="farrier-lockstep-") as built:
            compared = KernelHardware(kernel, Path(built)).check()
        for name, count in compared.differing.items():
            if count:
                typer.echo(f"{name}: {count:,} elements differ from the interpreter's", err=True)
        if not compared.agrees:
            typer.echo(f"Verilator took {compared.seen:,} cycles", err=True)
            raise typer.Exit(1)
        typer.echo(f"verified in Verilator: {compared.seen:,} cycles, equal bit for bit")


def accelerator_of(target: str) -> Accelerator:
    """Return the accelerator that the text `target` names or describes. Raises UsageError."""
    from farrier.cli.targets import read_target
    from farrier.targets import parse_target
    from farrier.targets.dae.backend import DaeTarget

    machine = parse_target(read_target(target))
    if not isinstance(machine, DaeTarget):
        raise UsageError(
            f"{target} is not an accelerator of the kind dae",
            hint="`farrier targets` lists accelerators such as dae:small; "
            "docs/accelerators.md explains how to describe others",
        )
    return machine.accelerator


def _check(accelerator: Accelerator, model: Path) -> None:
    """Print the cycles of a model's kernels in the simulator and in Verilator. Exit with 1 if the
    two differ."""
    from farrier.hardware.check import check_model
    from farrier.targets.dae.rtl.lockstep import Hardware

    table = Table("kernel", "simulator", "hardware", "", "bytes that differ")
    good = True
    with tempfile.TemporaryDirectory(prefix="farrier-lockstep-") as folder:
        for each in check_model(Hardware(accelerator, Path(folder)), model):
            good &= not each.differing and abs(each.drift) < _MOST_DRIFT
            cycles = (f"{each.simulator.cycles:,}", f"{each.hardware.cycles:,}")
            table.add_row(each.name, *cycles, f"{each.drift:+.2%}", str(each.differing))
    Console().print(table)
    if not good:
        typer.echo("the hardware and the simulator differ", err=True)
        raise typer.Exit(1)
