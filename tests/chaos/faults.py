"""Faults at random moments, drawn from a seed before anything happens, so that a run repeats."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence

from farrier.errors import FarrierError
from farrier_farm.redis.connection import connect
from farrier_farm.redis.retry import PROBE
from tests.small_disk import SmallDisk
from tests.up import Up

VICTIMS = {
    "API": "farrier.cli serve",
    "broker": "farrier.cli broker",
    "worker": "farrier.cli worker",
    "job": "farrier_worker.job",
    "builder": "farrier.cli builder",
    "compiling process": "farrier_worker.build",
    "trainer": "farrier.cli trainer",
    "training process": "farrier_worker.train",
    "agent": "-m farrier_device ",
    "measurement child": "import farrier_device.fork_server",
    "Valkey": "valkey-server",
}
KILL, STOP, CUT, FILL = "kill", "stop", "cut", "fill"
_WEIGHTS = {KILL: 0.5, STOP: 0.32, CUT: 0.1, FILL: 0.08}
_LINES = ("users", "Redis")
_GAP_S = 1.0  # On average; stops and full disks last longer, so that faults overlap.
_STOP_S = (0.2, 9.0)  # Some are continued, others have been replaced by then.
_FILL_S = (0.5, 5.0)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault: its kind, its time in seconds, its victim and its duration. `choice` selects one of
    several processes."""

    at_s: float
    what: str
    whom: str
    lasts_s: float
    choice: float

    def __str__(self) -> str:
        lasts = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return f"{self.at_s:6.1f} s  {self.what} {self.whom}{lasts}"

    @property
    def shuts_out_until_s(self) -> float | None:
        """The time, in seconds, from which clients that wait for the API may count its time to
        return; None if the fault does not concern it. The API needs Redis to start, and Redis needs
        room."""
        if self.what == FILL:
            return self.at_s + self.lasts_s
        return self.at_s if self.whom in ("API", "Valkey", "Redis") else None


def schedule(seed: int, count: int, *, has_disk: bool) -> list[Fault]:
    """The faults of a seed."""
    generator = random.Random(seed)
    weights = {what: share for what, share in _WEIGHTS.items() if has_disk or what != FILL}
    at_s, faults = 0.0, []
    for _ in range(count):
        at_s += generator.expovariate(1 / _GAP_S)
        (what,) = generator.choices([*weights], [*weights.values()])
        whom = generator.choice({CUT: _LINES, FILL: ("the disk",)}.get(what, tuple(VICTIMS)))
        lasts_s = generator.uniform(*{STOP: _STOP_S, FILL: _FILL_S}.get(what, (0.0, 0.0)))
        faults.append(Fault(at_s, what, whom, lasts_s, generator.random()))
    return faults


class Line:
    """A TCP line to a server, which may be away; `cut` ends all connections at once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._links: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        links, self._links = self._links, []
        for link in links:
            _hang_up(link)

    def close(self) -> None:
        _hang_up(self._listener)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._port), 5.0)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self._links += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=_forward, args=ends, daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for link in (source, sink):
        _hang_up(link)
    source.close()


def _hang_up(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)


class Injury:
    """A thread for each fault of a schedule, which causes it at its time."""

    def __init__(self, up: Up, line: Line, disk: SmallDisk | None) -> None:
        self._up = up
        self._line = line
        self._disk = disk
        self._filling = threading.Lock()
        self.done: list[str] = []

    def run(self, faults: Sequence[Fault], between: Callable[[], None]) -> float:
        """Return when it began, by the monotonic clock, once all faults are over. `between` is
        called after each of them."""
        begin = time.monotonic()
        threads = []
        for fault in faults:
            time.sleep(max(0.0, begin + fault.at_s - time.monotonic()))
            threads.append(threading.Thread(target=self._do, args=(fault,)))
            threads[-1].start()
            between()
        for thread in threads:
            thread.join()
        return begin

    def _do(self, fault: Fault) -> None:
        if fault.what == FILL:
            self._fill(fault.lasts_s)
        elif fault.what == CUT:
            self._cut(fault.whom)
        else:
            self._signal(fault)

    def _signal(self, fault: Fault) -> None:
        pids = sorted(self._up.pids(VICTIMS[fault.whom]))
        if not pids:
            return
        pid = pids[int(fault.choice * len(pids))]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if fault.what == KILL else signal.SIGSTOP)
            self.done.append(str(fault))
            if fault.what == STOP:
                time.sleep(fault.lasts_s)
                os.kill(pid, signal.SIGCONT)  # It may have been replaced meanwhile.

    def _cut(self, whom: str) -> None:
        if whom == "users":
            self._line.cut()
            return
        with contextlib.suppress(FarrierError):
            client = connect(f"unix://{self._up.home}/valkey.sock", PROBE)
            client.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            client.close()

    def _fill(self, lasts_s: float) -> None:
        if self._disk is None or not self._filling.acquire(blocking=False):
            return
        try:
            self._disk.fill()
            time.sleep(lasts_s)
        finally:
            self._disk.free()
            self._filling.release()


class Watch:
    """A thread that asks the API repeatedly whether it is ready, and remembers when it was."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._answers = [time.monotonic()]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def away(self, begin: float, faults: Sequence[Fault]) -> list[tuple[float, float]]:
        """For how long the API was away, longest first, and when that began, counted from the last
        fault that shut it out, as far as one did."""
        ends = [begin + s for fault in faults if (s := fault.shuts_out_until_s) is not None]
        gaps = []
        for before, after in zip(self._answers, self._answers[1:], strict=False):
            since = max([before, *(end for end in ends if end < after)])
            gaps.append((after - since, since - begin))
        return sorted(gaps, reverse=True)

    def _run(self) -> None:
        while not self._over.wait(0.1):
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self._port), 1.0) as link,
            ):
                link.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                if link.recv(64).startswith(b"HTTP/1.1 200"):
                    self._answers.append(time.monotonic())
