"""The commands that call a server: submit, jobs, watch, versions, rollback, cancel, delete, fetch,
and devices with its subcommands.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from farrier.cli import device_standing
from farrier.cli.local import (
    HotOption,
    MaxLayerErrorOption,
    SeedOption,
    ShapeOption,
    StateOption,
    TypicalOption,
    VerifyOption,
)
from farrier.cli.parsed import parsed
from farrier.cli.show import ProgressView, UploadView, ms, print_table
from farrier.cli.targets import FarmTargetOption, read_target
from farrier.errors import NotFoundError
from farrier.options import MAX_LAYER_ERROR
from farrier.progress import Warned
from farrier.sdk.client import Client, Job, StateChanged
from farrier.targets import called

PANEL = "Service"

ServerOption = Annotated[
    str | None, typer.Option("--server", help="URL of the server [env FARRIER_SERVER].")
]
JobArgument = Annotated[str, typer.Argument(help="Id of the job.")]

WaitForDeviceOption = Annotated[
    bool,
    typer.Option(
        "--wait-for-device",
        help="Queue the job although no device of the target's kind is connected; it waits "
        "until one is, and again if it loses its device.",
    ),
]
AgainstOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Compare the verified model with this engine, on a device that has it: "
        "onnxruntime or openvino; repeatable."
    ),
]
NowOption = Annotated[
    bool,
    typer.Option(
        "--now",
        help="Make the artifact available as soon as the untuned model is verified, and "
        "better versions while the job tunes, within --budget or --trials.",
    ),
]
PrivateOption = Annotated[
    bool,
    typer.Option(
        "--private",
        help="Keep the job's measurements and results from other users; their jobs do not "
        "learn from them.",
    ),
]
PriorityOption = Annotated[
    str,
    typer.Option(
        help="Priority among your own jobs: low, normal or high. Only operators may use high."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the app."""
    for verb in (submit, jobs, watch, versions, rollback, cancel, delete, fetch):
        app.command(verb.__name__, rich_help_panel=PANEL)(verb)
    group = typer.Typer(rich_markup_mode=None)
    group.callback(invoke_without_command=True)(devices)
    for about_device in device_standing.VERBS:
        group.command(about_device.__name__)(about_device)
    group.command("release")(release)
    group.command("trust")(trust)
    group.command("untrust")(untrust)
    app.add_typer(group, name="devices", rich_help_panel=PANEL)


def submit(
    model: Annotated[
        Path, typer.Argument(help="Model to compile: .onnx with its data, .tflite, .pt2 or .mlir.")
    ],
    target: FarmTargetOption = "host",
    budget: Annotated[str | None, typer.Option(help="Time budget of tuning: 60s, 5m.")] = None,
    trials: Annotated[int | None, typer.Option(help="Number of candidates to measure.")] = None,
    shape: ShapeOption = None,
    hot: HotOption = None,
    typical: TypicalOption = "",
    threads: Annotated[
        int, typer.Option(help="Number of threads; 0: one per core of the target.")
    ] = 0,
    seed: SeedOption = 0,
    max_layer_error: MaxLayerErrorOption = MAX_LAYER_ERROR,
    verify: VerifyOption = True,
    precision: Annotated[
        str,
        typer.Option(
            help="Type in which contractions multiply: f32, bf16, f16 or tf32; sums are in f32."
        ),
    ] = "f32",
    state: StateOption = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the job; default: the name of the file.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: submissions with the same key are one job.")
    ] = None,
    wait_for_device: WaitForDeviceOption = False,
    against: AgainstOption = None,
    now: NowOption = False,
    private: PrivateOption = False,
    priority: PriorityOption = "normal",
    follow: Annotated[bool, typer.Option("--watch", help="Watch the job until it ends.")] = False,
    server: ServerOption = None,
) -> None:
    """Upload a model and queue its compilation. Print the job's id."""
    with Client(server) as client, UploadView() as view:
        job = client.submit(
            model,
            target=read_target(target),
            trials=trials,
            threads=threads,
            seed=seed,
            max_layer_error=max_layer_error,
            verify=verify,
            precision=precision,
            **parsed(shape, hot, typical, budget, state),
            name=name,
            idempotency_key=key,
            wait_for_device=wait_for_device,
            against=against or (),
            now=now,
            private=private,
            priority=priority,
            listener=view,
        )
    typer.echo(job.id)
    if follow:
        watch(job.id, server)


def jobs(
    state: Annotated[str | None, typer.Option(help="List only jobs in this state.")] = None,
    owner: Annotated[str | None, typer.Option(help="List only jobs of this user.")] = None,
    search: Annotated[
        str | None, typer.Option(help="List only jobs whose name, id or target contains this text.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Largest number of jobs to list.")] = 50,
    server: ServerOption = None,
) -> None:
    """List jobs, the newest first."""
    columns = ["owner", "name", "target", "state", "stage", "trials", "best ms", "age"]
    table = Table(_id("job"), *columns, box=None)
    with Client(server) as client:
        for job in client.jobs(state=state, owner=owner, search=search, limit=limit):
            table.add_row(
                job.id,
                job.owner,
                job.name,
                called(job.target or str(job.options.get("target", ""))),
                job.state,
                "" if job.final else job.stage or "",
                "" if job.trials is None else str(job.trials),
                "" if job.best_ms is None else ms(job.best_ms),
                _age(time.time() - job.created),
            )
    print_table(table)


def watch(job: JobArgument, server: ServerOption = None) -> None:
    """Show a job's progress until it ends. Exit with the error's code if it failed."""
    with Client(server) as client:
        _watch(client, job)


def versions(job: JobArgument, server: ServerOption = None) -> None:
    """List the versions of a job's artifact. The one in use is marked."""
    with Client(server) as client:
        record = client.job(job)
    _print_versions(record)


def rollback(
    job: JobArgument,
    to: Annotated[
        int | None,
        typer.Option(help="Number of the version; default: the version before the one in use."),
    ] = None,
    server: ServerOption = None,
) -> None:
    """Put an earlier version of a job's artifact into use. Later versions do not replace it."""
    with Client(server) as client:
        record = client.roll_back(job, to)
    _print_versions(record)


def cancel(job: JobArgument, server: ServerOption = None) -> None:
    """Cancel a job."""
    with Client(server) as client:
        typer.echo(_line(client.cancel(job)))


def delete(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of the jobs.")],
    server: ServerOption = None,
) -> None:
    """Remove jobs with their artifacts. Running jobs are cancelled."""
    missing = []
    with Client(server) as client:
        for job in jobs:
            try:
                client.delete(job)
                typer.echo(f"{job} deleted")
            except NotFoundError as error:
                missing.append(error)
    if missing:  # The other jobs are removed all the same.
        raise missing[0]


def fetch(
    job: JobArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write [NAME.farrier].")
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(help="Number of the version to download; default: the version in use."),
    ] = None,
    server: ServerOption = None,
) -> None:
    """Download a job's artifact."""
    with Client(server) as client:
        path = output or Path(f"{Path(client.job(job).name).stem or job}.farrier")
        typer.echo(client.fetch(job, path, version=version))


def devices(
    context: typer.Context,
    tag: Annotated[str, typer.Option(help="List only devices that have this tag.")] = "",
    server: ServerOption = None,
) -> None:
    """List the devices that measure for the farm. The subcommands manage them."""
    if context.invoked_subcommand is not None:
        return
    columns = ["state", "trusted", "cpu", "cores", "batches", "faults", "seen", "health", "engines"]
    columns += ["gpus", "tags"]
    table = Table(_id("device"), _id("class"), *columns, box=None)
    with Client(server) as client:
        registered = client.devices(tag=tag)
        for device in registered:
            about = device.description
            table.add_row(
                device.id,
                device.device_class,
                device.state,
                "yes" if device.trusted else "no",
                _machine_of(about),
                str(about.get("cores", "")),
                str(device.measured),
                str(device.faults),
                f"{_age(time.time() - device.seen)} ago",
                _health(device.health),
                ", ".join(f"{name} {version}" for name, version in device.engines.items()),
                ", ".join(str(adapter.get("name", "")) for adapter in about.get("adapters") or ()),
                " ".join(device.tags),
            )
    print_table(table)
    for device in registered:
        if device.unfit:
            typer.echo(f"{device.id}: {device.unfit}")


def _machine_of(about: Mapping[str, Any]) -> str:
    """Return the processor of a device as text, marked if it is simulated."""
    simulated = ", simulated" if about.get("runner") == "simulator" else ""
    return f"{about.get('cpu', '')}{simulated}"


def release(
    device: Annotated[str, typer.Argument(help="Id of the device.")], server: ServerOption = None
) -> None:
    """Release a device from quarantine. Do this once it measures well again."""
    with Client(server) as client:
        released = client.release(device)
    typer.echo(f"{released.id} {released.state}")


def trust(
    device: Annotated[str, typer.Argument(help="Id of the device.")], server: ServerOption = None
) -> None:
    """Trust the measurements of a device. A model that it verified counts as verified."""
    with Client(server) as client:
        typer.echo(f"{client.trust(device).id} is trusted")


def untrust(
    device: Annotated[str, typer.Argument(help="Id of the device.")], server: ServerOption = None
) -> None:
    """Stop trusting a device. Its verifications must be confirmed by another device."""
    with Client(server) as client:
        typer.echo(f"{client.trust(device, trusted=False).id} is not trusted")


def _health(health: Mapping[str, Any]) -> str:
    """Return the state of a device's hardware as text: `61 °C, 1800 of 2400 MHz, waits to cool`."""
    parts = []
    if "celsius" in health:
        parts.append(f"{health['celsius']:.0f} °C")
    if "clock_mhz" in health:
        parts.append(f"{health['clock_mhz']} of {health.get('max_clock_mhz', '?')} MHz")
    return ", ".join(
        [*parts, *(str(health[reason]) for reason in ("throttled", "waits") if health.get(reason))]
    )


def _watch(client: Client, job_id: str) -> None:
    with ProgressView() as view:
        for update in client.watch(job_id):
            if not isinstance(update, StateChanged):
                view(update)
            elif update.reason:
                view(Warned(f"{update.state}: {update.reason}"))
    job = client.job(job_id)
    typer.echo(_line(job))
    if job.versions:
        _print_versions(job)
    job.raise_for_state()


def _print_versions(job: Job) -> None:
    table = Table("version", "median ms", "untuned ms", "age", "", box=None)
    in_use = "in use, kept" if job.version_is_kept else "in use"
    for version in job.versions:
        table.add_row(
            str(version.number),
            "" if version.median_ms is None else ms(version.median_ms),
            "" if version.untuned_ms is None else ms(version.untuned_ms),
            _age(time.time() - version.created),
            in_use if version.number == job.version else "",
        )
    print_table(table)


def _id(header: str) -> Column:
    """Return a table column for ids, which is never truncated, so that ids can be copied from
    it."""
    return Column(header, no_wrap=True, min_width=20)


def _line(job: Job) -> str:
    return f"{job.id} {job.state}"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"
