"""The commands that this package adds to `farrier`: `up`, `probe`, `backup` and `restore`, and the
groups of commands `tokens` and `keys`."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from farrier_farm.access.keys import Keys
    from farrier_farm.access.users import Users
    from farrier_farm.settings import Settings

tokens = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
keys = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
UserArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
HomeOption = Annotated[
    str | None, typer.Option("--home", help="The farm's directory [env FARRIER_HOME].")
]

ExpiresOption = Annotated[
    str,
    typer.Option(
        metavar="WHEN",
        help="Expiry of the token: a duration (12h, 30d, 8w), a date in "
        "UTC (2030-01-31), or never.",
    ),
]


class RoleOfUser(enum.StrEnum):
    """The roles of `users.Role`, repeated here so that the start of the command line need not
    import that module."""

    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"


class RoleName(enum.StrEnum):
    SERVE = "serve"
    BROKER = "broker"
    WORKER = "worker"
    BUILDER = "builder"
    TRAINER = "trainer"
    DEVICE = "device"


def up(
    port: Annotated[int | None, typer.Option(help="Port of the REST API [8440].")] = None,
    broker_port: Annotated[int | None, typer.Option(help="Port of the broker [8441].")] = None,
    home: Annotated[
        str | None, typer.Option(help="Directory of all data of the farm [~/.farrier].")
    ] = None,
    engines: Annotated[
        bool,
        typer.Option(
            "--engines",
            help="Let jobs race their models with the other engines that are installed here.",
        ),
    ] = False,
    builders: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Number of builders to start [0]. Jobs also compile in processes of their own.",
        ),
    ] = None,
) -> None:
    """Start the whole service on this machine. It consists of Valkey, the API, a broker, a worker,
    a trainer and a device agent."""
    import dataclasses

    from farrier_farm.roles.up import run
    from farrier_farm.settings import Settings

    settings = Settings.from_environment()
    options: dict[str, Any] = {
        "api_port": port,
        "broker_port": broker_port,
        "engines": engines or None,
        "builders": builders,
        "home": None if home is None else Path(home).expanduser().absolute(),
    }
    settings = dataclasses.replace(settings, **{k: v for k, v in options.items() if v is not None})
    raise SystemExit(run(settings, announce=typer.echo))


@tokens.callback()
def tokens_of_users() -> None:
    """Add, list, rotate or remove the tokens of users. Changes apply at once."""


@tokens.command("add")
def add_token(
    name: UserArgument,
    role: Annotated[
        RoleOfUser,
        typer.Option(
            help="Role of the user; user: own jobs only; operator: "
            "also devices and records; admin: everything."
        ),
    ] = RoleOfUser.USER,
    group: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Group of the user. Members of a group see each other's jobs and results.",
        ),
    ] = "",
    expires: ExpiresOption = "never",
    home: HomeOption = None,
) -> None:
    """Create a token for a user. The token is shown only now, because the farm stores only its
    hash."""
    from farrier_farm.access.users import Role, read_expiry

    until = read_expiry(expires)
    token = _users(home).add(name, Role(role), group=group, expires=until)
    _note("tokens.add", name, home)
    typer.echo(token)


@tokens.command("list")
def list_tokens(home: HomeOption = None) -> None:
    """List the users that have tokens of their own."""
    for user in _users(home).list():
        group = f"  group {user.group}" if user.group else ""
        ends = "expired" if user.has_expired else "expires"
        until = "" if user.expires is None else f"  {ends} {_time(user.expires)}"
        typer.echo(f"{user.name}  {user.role}{group}  since {_time(user.created)}{until}")


@tokens.command("rotate")
def rotate_token(
    name: UserArgument,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Expiry of the new token, as for `add`; default: that of the old token.",
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Replace a user's token. The old token and its sessions become invalid."""
    from farrier_farm.access.users import read_expiry

    until = None if expires is None else read_expiry(expires)
    token = _users(home).rotate(name, expires=until, for_ever=expires == "never")
    _note("tokens.rotate", name, home)
    typer.echo(token)


@tokens.command("revoke")
@tokens.command("remove")
def remove_token(name: UserArgument, home: HomeOption = None) -> None:
    """Revoke a user's token. The user's jobs stay, under the same name."""
    _users(home).remove(name)
    _note("tokens.remove", name, home)
    typer.echo(f"{name} removed")


def _time(moment: float) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _users(home: str | None) -> Users:
    """Return the users of the farm on this machine."""
    from farrier_farm.access.users import Users

    return Users(_home(home))


def _home(option: str | None) -> Path:
    return _settings(option).home


def _settings(home: str | None) -> Settings:
    """Return the settings from the environment; with `home`, the settings for that home and its
    embedded Valkey."""
    import dataclasses

    from farrier_farm.settings import Settings

    settings = Settings.from_environment()
    if home is None:
        return settings
    place = Path(home).expanduser().absolute()
    url = settings.redis_url if place == settings.home else None
    return dataclasses.replace(settings, home=place, redis_url=url)


def _note(action: str, about: str, home: str | None) -> None:
    """Add the action of a command to the farm's audit log."""
    from farrier_farm.access.audit import note_command

    note_command(_settings(home), action, about)


@keys.callback()
def keys_of_the_farm() -> None:
    """Show or replace the key that signs the artifacts."""


@keys.command("show")
def show_keys(
    pem: Annotated[
        bool, typer.Option("--pem", help="Print only the key in use, in PEM format for OpenSSL.")
    ] = False,
    home: HomeOption = None,
) -> None:
    """Print the public key for FARRIER_TRUST. Print also the keys that were in use before."""
    held = _keys(home)
    current = held.current().public
    if pem:
        typer.echo(current.pem, nl=False)
        return
    typer.echo(f"{current}  {current.fingerprint}")
    for key in held.retired():
        typer.echo(f"{key}  {key.fingerprint}  retired")


@keys.command("rotate")
def rotate_keys(home: HomeOption = None) -> None:
    """Sign with a new key from now on. Older artifacts stay signed by the old key, so trust both
    keys while such artifacts are in use."""
    key = _keys(home).rotate().public
    _note("keys.rotate", key.fingerprint, home)
    typer.echo(f"{key}  {key.fingerprint}")


def _keys(home: str | None) -> Keys:
    from farrier_farm.access.keys import Keys

    return Keys(_home(home))


def backup(
    target: Annotated[Path, typer.Argument(help="New folder or new .tar file to write.")],
    home: HomeOption = None,
) -> None:
    """Back up the farm of this machine while it runs. Keep the backup safe, because it contains all
    jobs, records, artifacts, users and keys."""
    import contextlib

    from farrier_farm.backup.backup import back_up
    from farrier_farm.farm import Farm

    with contextlib.closing(Farm.open(_settings(home))) as farm:
        summary = back_up(farm, target)
    _note("backup", str(target.absolute()), home)
    typer.echo(f"{target}: {summary}")


def restore(
    source: Annotated[Path, typer.Argument(help="Folder or .tar file of the backup.")],
    home: HomeOption = None,
) -> None:
    """Restore the farm of a backup into an empty home. Then `farrier up` starts it."""
    from farrier_farm.backup.restore import restore as restored

    settings = _settings(home)
    summary = restored(source, settings)
    _note("restore", str(source.absolute()), home)
    typer.echo(f"{settings.home}: {summary}")


def probe(
    role: Annotated[RoleName, typer.Argument(help="Role to check.")],
    state: Annotated[
        Path | None, typer.Option(help="State directory of the device agent (its --state).")
    ] = None,
) -> None:
    """Check whether a role on this machine is alive. A role is a process of the farm; health checks
    can run this command."""
    from farrier.errors import UsageError
    from farrier_device.alive import SIGNS
    from farrier_farm.redis import embedded
    from farrier_farm.roles import liveness
    from farrier_farm.settings import Settings

    settings = Settings.from_environment()
    if role is RoleName.DEVICE:
        if state is None:
            raise UsageError(
                "the state directory of the device agent is not specified", hint="use --state DIR"
            )
        signs = state / SIGNS
    else:
        signs = settings.signs
        url = settings.redis_url or f"unix://{embedded.socket_path(settings.home)}"
        if not liveness.answers(url):
            typer.echo(
                f"Redis does not answer, so the state of {role} is unknown: it may "
                "be waiting for Redis"
            )
            return
    pids = liveness.check(role, signs, settings.role_silence_s)
    typer.echo(f"{role} is alive: process {', '.join(map(str, pids))}")
