"""A separate farm without devices: Valkey, API, broker and a worker, each in its own process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from bench.ports import free_port
from farrier.errors import ServiceError
from farrier_farm.access.tokens import TokenRole, load_token
from farrier_farm.farm import Farm
from farrier_farm.redis import embedded
from farrier_farm.roles.supervisor import Role, stop_together
from farrier_farm.settings import Settings

_START_S = 120.0
_LOOK_S = 0.1
_ROLES = ("serve", "broker", "worker")


@dataclasses.dataclass(frozen=True, slots=True)
class OwnFarm:
    """The addresses of a farm's roles, and its processes by role: `serve`, `broker`, `worker`,
    `valkey`."""

    settings: Settings
    farm: Farm
    url: str
    broker: str
    token: str
    pids: dict[str, int]

    def commands(self) -> tuple[int, int]:
        """Return the numbers of commands (including those within scripts) and of scripts that Redis
        has executed."""
        statistics = self.farm.client.command("INFO", "commandstats")
        counts = {
            name.removeprefix("cmdstat_"): stats["calls"] for name, stats in statistics.items()
        }
        return sum(counts.values()), counts.get("evalsha", 0) + counts.get("eval", 0)


@contextlib.contextmanager
def own_farm() -> Iterator[OwnFarm]:
    """A context in which a farm runs with a temporary home folder. Raises ServiceError if a role
    does not start."""
    home = Path(tempfile.mkdtemp(prefix="farrier-"))  # The path of a Unix socket has to be short.
    settings = Settings(
        home=home, min_free_bytes=0, api_port=free_port(), broker_port=free_port(), drain_s=1.0
    )
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        valkey = embedded.start(settings)
        stack.callback(valkey.stop)
        settings = dataclasses.replace(settings, redis_url=valkey.url)
        token = load_token(settings, TokenRole.USER, create=True) or ""
        load_token(settings, TokenRole.DEVICE, create=True)
        roles = _roles(settings)
        for role in roles:
            role.start()
            stack.callback(stop_together, [role], lambda: True)
        url = f"http://{settings.api_host}:{settings.api_port}"
        _await(url, (settings.broker_host, settings.broker_port), roles)
        farm = stack.enter_context(contextlib.closing(Farm.open(settings)))
        pids = {role.name: role.pid or 0 for role in roles} | {"valkey": valkey.pid}
        broker = f"{settings.broker_host}:{settings.broker_port}"
        yield OwnFarm(settings, farm, url, broker, token, pids)


def _roles(settings: Settings) -> list[Role]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FARRIER_", "REDIS_"))}
    environment = {**kept, **settings.to_environment(), "PYTHONUNBUFFERED": "1"}
    logs = settings.home / "logs"
    logs.mkdir(exist_ok=True)
    return [
        Role(
            name,
            [sys.executable, "-m", "farrier.cli", name],
            logs,
            environment,
            signs=settings.signs,
        )
        for name in _ROLES
    ]


def _await(url: str, broker: tuple[str, int], roles: list[Role]) -> None:
    deadline = time.monotonic() + _START_S
    while not (_is_ready(url) and _accepts(broker)):
        for role in roles:
            if role.ended:
                raise ServiceError(f"{role.name} ended at its start: {role.last_words()}")
        if time.monotonic() > deadline:
            raise ServiceError(f"the farm does not come up in {_START_S:.0f} s")
        time.sleep(_LOOK_S)


def _is_ready(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    return False


def _accepts(address: tuple[str, int]) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=1):
        return True
    return False
