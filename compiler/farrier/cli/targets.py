"""The command `farrier targets`, and the parsing of `--target` values."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from farrier.cli.show import print_table
from farrier.errors import UsageError
from farrier.targets import KnownMachine, canonical, known_machines, parse_target
from farrier.targets.names import to_text
from farrier.targets.registry import backend_for
from farrier_device.describe import MachineDescription, describe

TargetOption = Annotated[
    str,
    typer.Option(
        help="Machine to compile for: host, a name that `farrier targets` lists, a "
        "description in FILE.json or FILE.toml, or HOST+DEVICE, such as rpi5+webgpu."
    ),
]
FarmTargetOption = Annotated[
    str,
    typer.Option(
        help="Machine to compile for: host, a name that `farrier targets` lists, a "
        "description in FILE.json or FILE.toml, HOST+DEVICE, such as rpi5+webgpu, or "
        "class:ID or device:NAME from `farrier devices`."
    ),
]


def read_target(text: str) -> str:
    """Return the target that a value of `--target` denotes: the name itself, or the description in
    a file as one line.

    Raises UsageError for a file that cannot be read, and for text that does not describe a target.
    """
    host, is_joined, file = text.rpartition("+")
    if file.endswith(".toml"):
        description = _from_toml(_content(file))
        text = to_text(dataclasses.replace(description, host=host if is_joined else ""))
    if text.endswith(".json"):
        text = _content(text).strip()
        if not text.startswith("{"):
            raise UsageError("the description of a target must be a JSON object")
    if text != "host" and not text.startswith(
        ("class:", "device:")
    ):  # The name may be that of another machine.
        parse_target(text)
    return canonical(text)


def _content(path: str) -> str:
    """Return the content of a text file. Raises UsageError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read the target {path}: {why}") from error


def _from_toml(text: str) -> MachineDescription:
    """Return the machine that a text in TOML describes in the format of its backend. Raises
    UsageError."""
    try:
        arch = tomllib.loads(text).get("arch")
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"cannot read the description of a machine: {error}",
            hint="a TOML file must end in .toml, and a JSON file in .json; `farrier "
            "targets NAME` prints the description of an accelerator in TOML, and of any "
            "other machine in JSON",
        ) from None
    if not isinstance(arch, str):
        raise UsageError(
            "a description in TOML must state its architecture as `arch`",
            hint='an accelerator has arch = "dae"',
        )
    return backend_for(arch).read(text)


def targets(
    name: Annotated[str | None, typer.Argument(help="Name of a machine to describe.")] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print JSON, even for an accelerator, which is otherwise printed as TOML.",
        ),
    ] = False,
) -> None:
    """List the machines that --target knows. For one machine, print its description, from which a
    file for another machine can start."""
    machines = known_machines()
    if name is not None:
        typer.echo(_text(_description(name, machines.get(name)).description, as_json=as_json))
        return
    table = Table(
        "name",
        "code for",
        Column("cores", justify="right"),
        Column("L1, L2, L3 KiB", justify="right"),
        "source",
        box=None,
        pad_edge=False,
    )
    here = {"host": KnownMachine(describe(), "this machine")}
    for each, machine in {**here, **machines}.items():
        description = machine.description
        try:
            target = backend_for(description.arch).target(description)
        except UsageError as error:
            table.add_row(each, "", "", "", escape(error.message))
            continue
        caches = (description.l1_bytes, description.l2_bytes, description.l3_bytes)
        sizes = ", ".join(str(size >> 10) for size in caches)
        code = " ".join([target.cpu, *(f"+{extension}" for extension in target.features)])
        table.add_row(each, escape(code), str(description.cores), sizes, escape(machine.source))
    print_table(table)


def _text(machine: MachineDescription, *, as_json: bool) -> str:
    """Return the text of a file that describes a machine: in the TOML format of its backend if
    there is one, else as JSON."""
    toml = "" if as_json else backend_for(machine.arch).written(machine).rstrip()
    return toml or json.dumps(dataclasses.asdict(machine), indent=2)


def _description(name: str, machine: KnownMachine | None) -> KnownMachine:
    """Return the machine that `farrier targets NAME` describes: for "host", this machine, otherwise
    `machine`, which has that name. Raises UsageError if `machine` is None, because the name is
    unknown."""
    if name == "host":
        return KnownMachine(describe(), "this machine")
    if machine is None:
        parse_target(name)
        raise UsageError(f"{name!r} is a description, not a name")
    return machine
