"""The verbs of `farrier devices` for operators: add, remove, revoke, drain, pause, resume, tag."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from farrier.options import parse_budget
from farrier.sdk.client import Client

_ServerOption = Annotated[
    str | None, typer.Option("--server", help="URL of the server [env FARRIER_SERVER].")
]
_DeviceArgument = Annotated[str, typer.Argument(help="Id of the device.")]
_LOOK_S = 1.0


def add(
    name: Annotated[str, typer.Argument(help="Name that the device will have.")],
    expires: Annotated[str, typer.Option(help="Time until the token expires: 10m, 1h.")] = "1h",
    again: Annotated[
        bool, typer.Option("--again", help="Replace a device that is enrolled or was revoked.")
    ] = False,
    server: _ServerOption = None,
) -> None:
    """Create a token with which a device can enrol once. Start its agent with
    `farrier-device --enrol TOKEN`."""
    with Client(server) as client:
        invitation = client.add_device(name, expires_s=parse_budget(expires), again=again)
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(invitation.expires))
    typer.echo(f"{invitation.token}")
    typer.echo(
        f"token for {invitation.name}, valid until {until}: start the agent with "
        "farrier-device --enrol TOKEN",
        err=True,
    )


def remove(device: _DeviceArgument, server: _ServerOption = None) -> None:
    """Forget a device and its history. It must be disconnected or revoked."""
    with Client(server) as client:
        client.remove_device(device)
    typer.echo(f"{device} removed")


def revoke(
    device: _DeviceArgument,
    drop_records: Annotated[
        bool,
        typer.Option(
            "--drop-records",
            help="Also remove all records of the device's measurements permanently.",
        ),
    ] = False,
    server: _ServerOption = None,
) -> None:
    """Disconnect a device at once. It is rejected until it enrols again."""
    with Client(server) as client:
        client.set_standing(device, "revoke")
        typer.echo(f"{device} revoked")
        if drop_records:
            typer.echo(f"{client.drop_records(device)} records of {device} removed")
        else:
            typer.echo(
                f"`farrier records drop --device {device}` removes the records of its measurements"
            )


def pause(device: _DeviceArgument, server: _ServerOption = None) -> None:
    """Send a device no new batches until it is resumed."""
    with Client(server) as client:
        client.set_standing(device, "pause")
    typer.echo(f"{device} paused")


def resume(device: _DeviceArgument, server: _ServerOption = None) -> None:
    """Send work again to a device that was paused or drained."""
    with Client(server) as client:
        client.set_standing(device, "resume")
    typer.echo(f"{device} resumed")


def drain(
    device: _DeviceArgument,
    wait: Annotated[
        bool,
        typer.Option(
            help="Return only when the device has finished its batch and can be switched off."
        ),
    ] = True,
    server: _ServerOption = None,
) -> None:
    """Send a device no batch after the present one. This lasts until its agent restarts."""
    with Client(server) as client:
        client.set_standing(device, "drain")
        while wait and client.device(device).state == "draining":
            time.sleep(_LOOK_S)
        typer.echo(f"{device} {client.device(device).state}")


def tag(
    device: _DeviceArgument,
    tags: Annotated[
        list[str] | None,
        typer.Argument(
            help="All tags that the device will have; without any, its tags are removed."
        ),
    ] = None,
    server: _ServerOption = None,
) -> None:
    """Set the tags of a device. `farrier devices --tag` selects devices by them."""
    with Client(server) as client:
        standing = client.tag_device(device, tags or [])
    typer.echo(f"{device} {' '.join(standing.tags) or 'has no tags'}")


VERBS = (add, remove, revoke, drain, pause, resume, tag)
