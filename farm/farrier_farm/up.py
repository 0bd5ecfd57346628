"""The whole service on one machine: every role as a process of its own, started and stopped as one.

    Valkey → API, broker → worker → device agent

A role that dies is started again, at most `RESTARTS` times in a row; the others go on meanwhile, as
they would on machines of their own. Ctrl-C or SIGTERM stops the roles in the opposite order.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib import error, request

from farrier.errors import ServiceError, StorageError
from farrier_farm import embedded
from farrier_farm.settings import Settings
from farrier_farm.tokens import TokenRole, load_token

RESTARTS = 5
STEADY_S = 30.0  # a role that lived this long starts counting its restarts anew
STOP_S = 20.0  # for all roles, before they are killed
READY_S = 60.0


@dataclasses.dataclass(slots=True)
class _Role:
    name: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    started: float = 0.0


def run(settings: Settings, *, announce: Callable[[str], None]) -> int:
    """Runs until SIGINT or SIGTERM; returns the exit code. Raises ServiceError where a role does
    not come up, with the place of its log."""
    try:
        logs = settings.home / "logs"
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StorageError(f"cannot create {settings.home}: {problem.strerror}") from problem
    stop = threading.Event()
    previous = {
        number: signal.signal(number, lambda _number, _frame: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    valkey = None if settings.redis_url else embedded.start(settings)
    url = settings.redis_url or (valkey.url if valkey else "")
    environment = _environment(settings, url)
    user_token = load_token(settings, TokenRole.USER, create=True)
    load_token(settings, TokenRole.DEVICE, create=True)
    roles = _roles(settings)
    api = f"http://{settings.api_host}:{settings.api_port}"
    try:
        for role in roles:
            _start(role, logs, environment)
        _await_ready(api, roles, logs, stop)
        announce(f"Farrier is up at {api} (API page: {api}/docs)")
        announce(f"token: {user_token}")
        announce(f"kept in {settings.home}; Ctrl-C stops everything")
        while not stop.wait(0.5):
            if valkey is not None and valkey.revive():
                announce("Valkey had died; it runs again, with everything that was acknowledged")
            _revive(roles, logs, environment, announce)
        announce("stopping")
        return 0
    finally:
        _stop(roles)
        if valkey is not None:
            valkey.stop()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _roles(settings: Settings) -> list[_Role]:
    farrier = [sys.executable, "-m", "farrier.cli"]
    broker = f"{settings.broker_host}:{settings.broker_port}"
    return [
        _Role("serve", [*farrier, "serve"]),
        _Role("broker", [*farrier, "broker"]),
        _Role("worker", [*farrier, "worker"]),
        _Role(
            "device",
            [
                sys.executable,
                "-m",
                "farrier_device.agent",
                "--broker",
                broker,
                "--token-file",
                str(settings.device_token_file or settings.home / f"{TokenRole.DEVICE}.token"),
                "--name",
                "local",
                "--state",
                str(settings.home / "device"),
            ],
        ),
    ]


def _environment(settings: Settings, redis_url: str) -> Mapping[str, str]:
    settings = dataclasses.replace(settings, redis_url=redis_url)
    return {**os.environ, **settings.to_environment(), "PYTHONUNBUFFERED": "1"}


def _start(role: _Role, logs: Path, environment: Mapping[str, str]) -> None:
    with (logs / f"{role.name}.log").open("ab") as log:
        # A session of its own: Ctrl-C reaches this process alone, which stops the roles in order.
        role.process = subprocess.Popen(
            role.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    role.started = time.monotonic()


def _await_ready(api: str, roles: list[_Role], logs: Path, stop: threading.Event) -> None:
    """Waits until the API answers that Redis and the disk answer it."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and not stop.is_set():
        for role in roles:
            if role.process is not None and role.process.poll() is not None:
                raise ServiceError(
                    f"farrier {role.name} ended at its start: {_last_line(logs, role)}",
                    hint=f"its log is {logs / role.name}.log",
                )
        try:
            with request.urlopen(f"{api}/readyz", timeout=2):
                return
        except (error.URLError, OSError):
            stop.wait(0.1)
    if not stop.is_set():
        raise ServiceError(
            f"{api} did not answer within {READY_S:.0f} s", hint=f"logs are in {logs}"
        )


def _revive(
    roles: list[_Role],
    logs: Path,
    environment: Mapping[str, str],
    announce: Callable[[str], None],
) -> None:
    for role in roles:
        if role.process is None or role.process.poll() is None:
            continue
        lived = time.monotonic() - role.started
        role.restarts = 0 if lived > STEADY_S else role.restarts + 1
        announce(f"{role.name} ended with code {role.process.returncode}: {_last_line(logs, role)}")
        if role.restarts > RESTARTS:
            raise ServiceError(
                f"{role.name} ended {RESTARTS} times in a row", hint=f"see {logs / role.name}.log"
            )
        _start(role, logs, environment)


def _stop(roles: list[_Role]) -> None:
    for role in reversed(roles):
        if role.process is not None and role.process.poll() is None:
            role.process.terminate()
    deadline = time.monotonic() + STOP_S
    for role in reversed(roles):
        if role.process is None:
            continue
        try:
            role.process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            role.process.kill()
            role.process.wait()


def _last_line(logs: Path, role: _Role) -> str:
    lines = (logs / f"{role.name}.log").read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
