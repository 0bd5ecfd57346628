"""The command `farrier up`: all roles of a farm on one machine, each as a process, started and
stopped together.

    Valkey → API, broker, worker, builders, trainer → device agent

A role that exits is always started again, with pauses that increase while it repeatedly exits; a
role that hangs is killed and started again. The other roles keep working, as they would on separate
machines. Ctrl-C, SIGTERM or the end of the terminal session stops the roles in the opposite order;
after a second Ctrl-C, workers hand their jobs back to the queue at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import os
import queue
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from farrier.errors import ConflictError, FarrierError, ServiceError, StorageError, UsageError
from farrier_device.alive import SIGNS
from farrier_device.closing import Closing
from farrier_device.secret_file import is_enrolled
from farrier_farm import disk
from farrier_farm.access.tokens import TokenRole, load_token, token_file, whereabouts
from farrier_farm.devices.devices import Devices
from farrier_farm.devices.enrolments import REVOKED, Enrolments
from farrier_farm.measurements.measurements import Measurements
from farrier_farm.redis import embedded
from farrier_farm.redis.connection import Client, connect
from farrier_farm.redis.retry import PROMPT
from farrier_farm.roles import process_state
from farrier_farm.roles.liveness import STOPPED_S, Liveness, answers
from farrier_farm.roles.probe import Probe, local_address
from farrier_farm.roles.supervisor import Role, stop_together
from farrier_farm.settings import Settings

DEVICE = "local"
READY_S = 60.0
_LOOK_S = 0.1
_WATCH_S = 0.5
_VALKEY_PAUSE_S = 5.0
_ROOM_PAUSE_S = 1.0  # The interval at which a full disk is checked.

Announce = Callable[[str], None]


def run(settings: Settings, *, announce: Announce) -> int:
    """Run the farm until a signal arrives; return the exit code.

    Raises ConflictError if a farm is already running in this home, UsageError for a port that is in
    use, ServiceError with the last lines of the log for a role that does not start.
    """
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(_caught_signals())
        stack.enter_context(_alone_in(settings.home))
        settings = dataclasses.replace(
            settings,
            api_port=_free_port(settings.api_host, settings.api_port, "--port"),
            broker_port=_free_port(settings.broker_host, settings.broker_port, "--broker-port"),
        )
        if settings.redis_url is None:
            valkey = embedded.start(settings)
            stack.callback(valkey.stop)
            stack.enter_context(_Store(valkey, announce))
            settings = dataclasses.replace(settings, redis_url=valkey.url)
        else:
            # A Redis that does not answer is reported here, not by the first role that fails.
            connect(settings.redis_url, PROMPT).close()
        token = load_token(settings, TokenRole.USER, create=True)
        load_token(settings, TokenRole.DEVICE, create=True)
        crew = _Crew(settings, stop)
        stack.callback(crew.stop)
        url = crew.start(announce)
        if url is not None:
            _introduce(settings, url, token or "", announce)
        while not stop.wait(_WATCH_S):
            crew.look_after(announce)
        announce("stopping")
    return 0


class _Stop:
    """The requests of the user (signals) to stop the farm: their number, and a way to wait for the
    first."""

    def __init__(self) -> None:
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._asked = 0

    def ask(self, _number: int, _frame: FrameType | None) -> None:
        self._asked += 1
        self._bell.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for the user to request a stop; return whether the user has."""
        if self._asked == 0:
            with contextlib.suppress(queue.Empty):
                self._bell.get(timeout=timeout_s)
        return self._asked > 0

    def asked_twice(self) -> bool:
        return self._asked > 1


class _Store(Closing):
    """Valkey, with a thread that monitors the server, because each check may have to wait for an
    answer. Valkey is started again if it dies. If a signal has stopped it, it is continued instead,
    since after a restart it would have to load all data."""

    def __init__(self, valkey: embedded.Embedded, announce: Announce) -> None:
        self._valkey = valkey
        self._announce = announce
        self._failing = False
        self._stopped_at: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="valkey")
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = _WATCH_S
        while not self._over.wait(pause_s):
            self._continue()
            pause_s = self._revive()

    def _continue(self) -> None:
        pid, now = self._valkey.owned_pid, time.monotonic()
        if pid is None or not process_state.is_stopped(pid):
            self._stopped_at = None
        elif self._stopped_at is None:
            self._stopped_at = now
            self._announce(
                f"Valkey (process {pid}) was stopped by a signal; it is continued after "
                f"{STOPPED_S:.0f} s"
            )
        elif now - self._stopped_at >= STOPPED_S:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _revive(self) -> float:
        """Start Valkey again if it has died. Return the time until the next check, in seconds."""
        try:
            revived = self._valkey.revive()
        except (FarrierError, OSError) as error:
            if not self._failing:
                self._announce(
                    f"Valkey ended and does not start; the next attempt follows: {error}"
                )
            self._failing = True
            return _ROOM_PAUSE_S if isinstance(error, StorageError) else _VALKEY_PAUSE_S
        if revived:
            self._failing = False
            self._announce("Valkey ended and is running again; no acknowledged data was lost")
        return _WATCH_S


class _Crew:
    """The roles (processes) of a farm except Valkey."""

    def __init__(self, settings: Settings, stop: _Stop) -> None:
        self._settings = settings
        self._stop = stop
        self._probe = Probe(settings)
        self._logs = settings.home / "logs"
        self._state = settings.home / "device"
        self._environment = {**os.environ, **settings.to_environment(), "PYTHONUNBUFFERED": "1"}
        farrier = [sys.executable, "-m", "farrier.cli"]
        self._liveness = Liveness(settings.role_silence_s, self._redis_answers)
        self._servers = [self._role(name, [*farrier, name]) for name in ("serve", "broker")]
        self._workers = [self._role("worker", [*farrier, "worker"])]
        for number in range(1, settings.builders + 1):
            self._workers.append(self._builder(number, [*farrier, "builder"]))
        self._workers.append(self._role("trainer", [*farrier, "trainer"]))

    def start(self, announce: Announce) -> str | None:
        """Start all roles, and return the URL of the API when they are ready; None if the user has
        requested a stop before."""
        for role in (*self._servers, *self._workers):
            role.start()
        if not self._await(self._probe.answers, f"{self._probe.url} does not answer"):
            return None
        client = connect(self._settings.redis_url or "", PROMPT)
        try:
            devices = Devices(client, self._settings)
            invitation = self._invitation(client)
            if invitation is None:
                announce(
                    f"the device {DEVICE} is revoked, so its agent is not started; to let it "
                    f"return at the next start: farrier devices remove {DEVICE}"
                )
                return self._probe.url
            device = self._device(invitation)
            before = _session(devices)
            self._workers.append(device)
            device.start()
            connected = self._await(
                lambda: _session(devices) not in ("", before), "the device agent does not connect"
            )
            if connected:
                devices.trust_own(DEVICE)
        finally:
            client.close()
        return self._probe.url if connected else None

    def _redis_answers(self) -> bool:
        return answers(self._settings.redis_url or "")

    def look_after(self, announce: Announce) -> None:
        """Restart roles that have exited, and replace roles that hang. While Redis is unavailable
        no role is started; when it is available again, each is started at once."""
        roles = (*self._servers, *self._workers)
        for role in roles:
            number = role.stopped_by()
            if number is not None:
                announce(
                    f"{role.name} was stopped by {number.name}: kill -CONT {role.pid} continues "
                    f"it; after {STOPPED_S:.0f} s it is replaced"
                )
        for role, why in self._liveness.hung(roles):
            announce(f"{role.name} (process {role.pid}) hangs: {why}; it is killed and restarted")
            role.replace()
        # One answer serves all roles of this round.
        redis_answers = functools.cache(self._redis_answers)
        for role in roles:
            news = role.look_after(redis_answers)
            if news:
                announce(news)

    def stop(self) -> None:
        """Stop all roles, first the workers, so that they can still send their results to the
        servers."""
        for roles in (self._workers, self._servers):
            stop_together(roles, self._stop.asked_twice)

    def _role(self, name: str, command: list[str | Path]) -> Role:
        """Return the role `name` with these command-line arguments."""
        return Role(name, command, self._logs, self._environment, signs=self._settings.signs)

    def _builder(self, number: int, command: list[str | Path]) -> Role:
        """Return the role of the builder with this number; the settings determine how many builds
        it runs in parallel."""
        environment = dict(self._environment)
        environment["FARRIER_BUILDS_AT_ONCE"] = str(self._settings.builds_at_once or 1)
        signs = self._settings.signs
        name = f"builder-{number}"
        return Role(name, command, self._logs, environment, signs=signs, sign="builder")

    def _invitation(self, client: Client) -> str | None:
        """Return an enrolment token for the device agent of this machine; "" if the agent is
        already enrolled, None if it is revoked."""
        batches = Measurements(client, self._settings).leases
        enrolments = Enrolments(client, self._settings, batches)
        standing = enrolments.standing(DEVICE)
        if standing == REVOKED:
            return None
        if standing is not None and is_enrolled(self._state):
            return ""
        return enrolments.invite(DEVICE, again=True).token

    def _device(self, invitation: str) -> Role:
        environment = {**self._environment, "FARRIER_ENROL": invitation}
        signs = self._state / SIGNS
        command = self._device_command()
        return Role("device", command, self._logs, environment, signs=signs, needs="broker")

    def _device_command(self) -> list[str | Path]:
        settings = self._settings
        token = token_file(settings, TokenRole.DEVICE)
        command: list[str | Path] = [
            *(sys.executable, "-m", "farrier_device"),
            *("--broker", local_address(settings.broker_host, settings.broker_port)),
            *("--token-file", token, "--name", DEVICE, "--state", self._state),
            *("--log", settings.log),
        ]
        if settings.engines:
            command.append("--engines")
        if settings.tls_cert is not None:
            command += ["--tls-ca", settings.tls_cert]
            if self._probe.certified_name:
                command += ["--tls-name", self._probe.certified_name]
        return command

    def _await(self, ready: Callable[[], bool], complaint: str) -> bool:
        """Wait until `ready()` is true; return False if the user has requested a stop before.
        Raises ServiceError with `complaint` if a role exits."""
        deadline = time.monotonic() + READY_S
        while not self._stop.wait(_LOOK_S):
            for role in (*self._servers, *self._workers):
                if role.ended:
                    raise ServiceError(
                        f"farrier {role.name} ended at its start: {role.last_words()}",
                        hint=f"its log is {role.log}",
                    )
            if ready():
                return True
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{complaint}", hint=f"the logs of the roles are in {self._logs}"
                )
        return False


def _introduce(settings: Settings, url: str, token: str, announce: Announce) -> None:
    announce(f"Farrier is up at {url}")
    announce(f"dashboard: {url}/ (the REST API: {url}/docs)")
    announce(f"token: {token} ({whereabouts(settings, TokenRole.USER)})")
    announce(f"data is kept in {settings.home}; Ctrl-C stops everything")
    needed = {}
    if settings.home != Settings().home:
        needed["FARRIER_HOME"] = str(settings.home)
    if url != Settings().server:
        needed["FARRIER_SERVER"] = url
    if settings.broker_port != Settings().broker_port:
        needed["FARRIER_BROKER_PORT"] = str(settings.broker_port)
    if settings.tls_cert is not None:
        needed["FARRIER_CA"] = str(settings.tls_cert)
    words = " ".join(
        f"{name}={shlex.quote(value)}"
        for name, value in needed.items()
        if os.environ.get(name) != value
    )
    if words:
        announce(f"for the command line: export {words}")


def _session(devices: Devices) -> str:
    """Return the session of this machine's device agent; "" if the agent has no session or is not
    enrolled."""
    enrolled = [
        device for device in devices.list() if device.id == DEVICE and device.enrolled is not None
    ]
    return enrolled[0].session if enrolled else ""


@contextlib.contextmanager
def _caught_signals() -> Iterator[_Stop]:
    stop = _Stop()
    caught = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # Under nohup, SIGHUP is ignored.
        caught.append(signal.SIGHUP)
    previous = {number: signal.signal(number, stop.ask) for number in caught}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _alone_in(home: Path) -> Iterator[None]:
    """Return a context in which no other process can run a farm in this home."""
    with disk.storage_errors(f"cannot write in {home}"):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "logs").mkdir(exist_ok=True)
        lock = (home / "up.lock").open("a+")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise ConflictError(
                f"farrier up is already running in {home} (process {lock.read().strip()})",
                hint="use it, or start another one with --home DIR --port 0 --broker-port 0",
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _free_port(host: str, port: int, option: str) -> int:
    """Return the port, or for 0 any free port. Raises UsageError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            raise UsageError(
                f"cannot listen on {host}:{port}: {problem.strerror}",
                hint=f"another server may run there; {option} 0 takes any free port",
            ) from problem
        return int(probe.getsockname()[1])
