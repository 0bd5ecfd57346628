"""The commands for tuning records, of a farm or in a file: records show, records export, records
import, records prune, records drop.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from farrier.cli.remote import PANEL, ServerOption
from farrier.cli.show import print_table
from farrier.errors import UsageError
from farrier.files.atomic import write_atomically
from farrier.records import (
    ALL,
    Damage,
    FileRecords,
    KnownSchedule,
    Pruning,
    RuleSummary,
    Selection,
    TuningRecord,
    fastest,
    malformed,
    numbered_lines,
    read_lines,
    record_of,
    summarize,
)
from farrier.sdk.client import Client
from farrier.sdk.records import Imported

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ADDED_AT_ONCE = 1000

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="Use a file of records, such as `farrier compile "
        "--records` writes, instead of the service.",
    ),
]
ClassOption = Annotated[
    str | None,
    typer.Option("--device-class", help="Select only records of the device class with this id."),
]
TaskOption = Annotated[
    str | None, typer.Option("--task", help="Select only records of the task with this key.")
]
PrivateOption = Annotated[
    bool,
    typer.Option(
        "--private", help="Use the records of your private jobs instead of those of all users."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands `records …` to the app."""
    group = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
    group.callback()(records)
    for name, verb in (
        ("show", show),
        ("export", export),
        ("import", import_),
        ("prune", prune),
        ("drop", drop),
    ):
        group.command(name)(verb)
    app.add_typer(group, name="records", rich_help_panel=PANEL)


def records() -> None:
    """Show, export, import or remove tuning records. A record is a measurement of a candidate."""


def show(
    task: Annotated[
        str | None,
        typer.Option("--task", help="Show the fastest schedules of the task with this key."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            min=1, max=1000, help="With --task, the number of schedules for each class and context."
        ),
    ] = 10,
    file: FileOption = None,
    private: PrivateOption = False,
    server: ServerOption = None,
) -> None:
    """List the records by device class and rule. With --task, list its fastest schedules."""
    _check_store(file, private)
    if file is not None:
        records = _readable(file)
        if task is None:
            _print_rules(summarize(records))
        else:
            _print_schedules(fastest((record for record in records if record.task == task), limit))
        return
    with Client(server) as client:
        if task is None:
            _print_rules(client.show_records(private=private))
        else:
            _print_schedules(client.fastest_schedules(task, limit, private=private))


def export(
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write, as JSON lines.")],
    device_class: ClassOption = None,
    task: TaskOption = None,
    since: Annotated[
        str | None,
        typer.Option(help="Select only records made since this date, in UTC: 2026-11-01."),
    ] = None,
    file: FileOption = None,
    private: PrivateOption = False,
    server: ServerOption = None,
) -> None:
    """Write records to a file atomically."""
    _check_store(file, private)
    selection = Selection(
        device_class=device_class, task=task, since=None if since is None else _moment(since)
    )
    if file is not None:
        _write(output, _selected(file, selection))
        return
    with Client(server) as client:
        lines = client.export_records(
            device_class=selection.device_class,
            task=selection.task,
            since=selection.since,
            private=private,
        )
        _write(output, lines)


def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="File of records, as JSON lines.")],
    into: Annotated[
        Path | None,
        typer.Option("--into", help="Add the records to this file instead of the service."),
    ] = None,
    private: PrivateOption = False,
    server: ServerOption = None,
) -> None:
    """Add the records of a file. Records that are stored already are skipped."""
    _check_store(into, private)
    if into is not None:
        imported = _import_into(FileRecords(into), source)
    else:
        with Client(server) as client:
            imported = client.import_records(source, private=private)
    typer.echo(f"{imported.added} records added, {imported.present} were there already")


def prune(
    device_class: ClassOption = None,
    older_than: Annotated[
        str | None, typer.Option(help="Select only records that are older than this: 90d, 12h.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Select only records of failures, which have no time.")
    ] = False,
    other_versions: Annotated[
        bool,
        typer.Option(
            "--other-versions", help="Select only records of rules that this version does not have."
        ),
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Keep this number of the fastest schedules of each task, rule and class, "
            "both alone and in the model.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print how many records would be removed, and remove none."),
    ] = False,
    file: FileOption = None,
    private: PrivateOption = False,
    server: ServerOption = None,
) -> None:
    """Permanently remove the records that meet all criteria."""
    _check_store(file, private)
    before = None if older_than is None else time.time() - _age(older_than)
    asked = Selection(device_class=device_class, before=before, failed=failed)
    if asked == ALL and not other_versions and keep is None:
        raise UsageError(
            "no criterion selects the records to remove",
            hint="use --device-class, --older-than, --failed, --other-versions or --keep",
        )
    if file is not None:
        pruned = _prune_file(file, asked, other_versions, keep, dry_run=dry_run)
    else:
        with Client(server) as client:
            pruned = client.prune_records(
                device_class=device_class,
                before=before,
                failed=failed,
                other_versions=other_versions,
                keep=keep,
                dry_run=dry_run,
                private=private,
            )
    typer.echo(f"{pruned} records {'would go' if dry_run else 'removed'}")


def drop(
    device: Annotated[
        str, typer.Option("--device", help="Id of the device that measured the records.")
    ],
    since: Annotated[
        str | None,
        typer.Option(help="Select only records made since this date, in UTC: 2026-11-01."),
    ] = None,
    server: ServerOption = None,
) -> None:
    """Permanently remove the records that a device measured. This is for all users."""
    with Client(server) as client:
        dropped = client.drop_records(device, since=None if since is None else _moment(since))
    typer.echo(f"{dropped} records of {device} removed")


def _check_store(file: Path | None, private: bool) -> None:
    if file is not None and private:
        raise UsageError(
            f"the file {file} does not show which of its records are private",
            hint="leave out --private, or leave out the file to use the records of the service",
        )


def _prune_file(
    path: Path, asked: Selection, other_versions: bool, keep: int | None, *, dry_run: bool
) -> int:
    rules = None
    if other_versions:
        from farrier.model_tuning.known_rules import known_rules

        rules = known_rules()
    selection = Selection(
        device_class=asked.device_class, before=asked.before, failed=asked.failed, rules=rules
    )
    store = _existing(path)
    doomed = Pruning(selection, keep).records_to_remove(list(store))
    if doomed and not dry_run:
        store.remove(doomed)
    return len(doomed)


def _existing(path: Path) -> FileRecords:
    """Return the records of a file, which must exist. Raises StorageError."""
    next(numbered_lines(path), None)
    return FileRecords(path)


def _readable(path: Path) -> Iterator[TuningRecord]:
    """Yield the records of a file; after the last one, warn of lines that are not records."""
    damaged: list[Damage] = []
    count = 0
    for record in read_lines(path):
        if isinstance(record, Damage):
            count += 1
            damaged = damaged or [record]
        else:
            yield record
    if damaged:
        typer.echo(f"{count} lines of {path} are not records: {damaged[0]}", err=True)


def _selected(path: Path, selection: Selection) -> Iterator[str]:
    return (record.to_line() for record in _readable(path) if selection.admits(record))


def _write(path: Path, lines: Iterable[str]) -> None:
    count = 0

    def write_to(file: IO[bytes]) -> None:
        nonlocal count
        for line in lines:
            file.write(f"{line}\n".encode())
            count += 1

    write_atomically(path, write_to)
    typer.echo(f"{count} records in {path}")


def _import_into(store: FileRecords, source: Path) -> Imported:
    """Add the records of a file in batches, and return the counts. Raises UsageError that names the
    first line that is not a record; the records before that line are added."""
    added = count = 0
    part: list[TuningRecord] = []
    for number, line in numbered_lines(source):
        try:
            part.append(record_of(line))
        except ValueError as error:
            store.add_all(part)
            raise malformed(f"line {number} of {source}", error) from None
        if len(part) == _ADDED_AT_ONCE:
            added, count = added + store.add_all(part), count + len(part)
            part.clear()
    added, count = added + store.add_all(part), count + len(part)
    return Imported(added, count - added)


def _print_rules(rules: Iterable[RuleSummary]) -> None:
    columns = ["records", "tasks", "failed", "oldest", "newest"]
    table = Table(
        Column("class", no_wrap=True),
        "rule",
        *(Column(name, justify="right") for name in columns),
        box=None,
    )
    for summary in rules:
        numbers = (summary.records, summary.tasks, summary.failed)
        table.add_row(
            Text(summary.device_class or "(none)"),
            Text(summary.rule),
            *map(str, numbers),
            *map(_date, (summary.oldest, summary.newest)),
        )
    print_table(table)


def _print_schedules(schedules: Iterable[KnownSchedule]) -> None:
    table = Table(
        Column("class", no_wrap=True),
        "measured",
        Column("µs", justify="right"),
        "threads",
        "rule",
        "made",
        "decisions",
        box=None,
    )
    for schedule in schedules:
        table.add_row(
            Text(schedule.device_class or schedule.fingerprint),
            schedule.context,
            f"{schedule.us:.3f}",
            str(schedule.threads),
            Text(f"{schedule.rule} {schedule.version}"),
            _date(schedule.created),
            Text(" ".join(f"{knob}={value}" for knob, value in schedule.decisions.items())),
        )
    print_table(table)


def _date(seconds: float) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, ValueError, OSError):  # Beyond the range of calendars.
        return f"{seconds:.0f}"
    return moment.strftime("%Y-%m-%d %H:%M")


def _moment(text: str) -> float:
    """Parse a point in time to Unix seconds: `2026-11-01`, `2026-11-01T12:30+01:00`; without a
    zone, in UTC."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"cannot read the date {text!r}", hint="write --since 2026-11-01 or 2026-11-01T12:30"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _age(text: str) -> float:
    """Parse a duration to seconds: `90d`, `12h`."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", text)
    if match is None:
        raise UsageError(f"cannot read the age {text!r}", hint="write --older-than 90d, 12h or 30m")
    return float(match[1]) * _UNITS[match[2]]
