"""`python -m bench.viewers`: the latency of the API while many people watch a farm.

    python -m bench.viewers --viewers 50 --seconds 60

It runs a seeded farm (`bench.seeded`), whose newest job keeps measuring, and a server process. Each
viewer follows the event streams of that job and of the farm, and requests the overview and the list
of jobs every two seconds, as the dashboard's pages do; some also request the job, its curve and its
log. It prints the response times by route, the age of events at their arrival, and the server's
memory and share of a core. The viewers use the same cores, so latencies include their own
processing.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx

from bench.ports import free_port

_POLL_S = 2.0
_LOOK_S = 1.0  # The interval at which the server's memory is read.
_START_S = 120.0
_P99_MS = 100.0  # The limit of the slowest hundredth.


@dataclasses.dataclass
class Seen:
    """The viewers' measurements: response times by route and the age of events, both in
    milliseconds."""

    answers: dict[str, list[float]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(list)
    )
    ages: list[float] = dataclasses.field(default_factory=list)
    failed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


class Viewer:
    """A simulated person with a page open."""

    def __init__(self, http: httpx.AsyncClient, job: str, seen: Seen, draw: random.Random) -> None:
        self._http = http
        self._job = job
        self._seen = seen
        self._draw = draw

    async def follow(self, path: str) -> None:
        """Read an event stream forever, and record the age of each event in ms."""
        async with self._http.stream("GET", path, timeout=60) as answer:
            if answer.status_code != 200:
                self._seen.failed[f"{path} {answer.status_code}"] += 1
                return
            async for line in answer.aiter_lines():
                if line.startswith("id: "):
                    said = int(line[4:].partition("-")[0])
                    self._seen.ages.append(time.time() * 1000 - said)

    async def ask(self, number: int) -> None:
        """Request the pages' data every two seconds, forever, with a start that differs between
        viewers."""
        await asyncio.sleep(self._draw.random() * _POLL_S)
        paths = ["/v1/overview", "/v1/jobs"]
        if number % 5 == 0:
            job = f"/v1/jobs/{self._job}"
            paths += [job, f"{job}/curve", f"{job}/log", "/v1/devices"]
        while True:
            begin = time.monotonic()
            for path in paths:
                await self._get(path)
            await asyncio.sleep(max(0.0, _POLL_S - (time.monotonic() - begin)))

    async def _get(self, path: str) -> None:
        begin = time.perf_counter()
        try:
            answer = await self._http.get(path, timeout=30)
        except httpx.HTTPError as error:
            self._seen.failed[f"{path} {type(error).__name__}"] += 1
            return
        route = path.replace(self._job, "{id}")
        if answer.status_code != 200:
            self._seen.failed[f"{route} {answer.status_code}"] += 1
        self._seen.answers[route].append((time.perf_counter() - begin) * 1000)


@contextlib.contextmanager
def _running(command: Sequence[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    """A context with a process of this Python interpreter, which is terminated at the end."""
    words = [sys.executable, "-m", *command]
    with subprocess.Popen(words, text=True, **options) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.terminate()


def _first_lines(process: subprocess.Popen[str]) -> list[str]:
    """Wait until a seeded farm is ready, and return its first lines of output: its size, then the
    running jobs."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if line.startswith("live"):
            return lines
    raise SystemExit("the farm could not be seeded")


async def _watch(url: str, token: str, job: str, server: int, viewers: int, seconds: float) -> int:
    draw, seen = random.Random(7), Seen()
    memory: list[float] = []
    async with contextlib.AsyncExitStack() as stack:
        tasks: list[asyncio.Task[None]] = []
        for number in range(viewers):
            http = await stack.enter_async_context(
                httpx.AsyncClient(
                    base_url=url,
                    headers={"Authorization": f"Bearer {token}"},
                    trust_env=False,
                    verify=False,
                )
            )
            viewer = Viewer(http, job, seen, draw)
            newest = (await http.get(f"/v1/jobs/{job}/curve")).json()["event"]
            for path in (f"/v1/jobs/{job}/events?after={newest}", "/v1/events"):
                tasks.append(asyncio.create_task(viewer.follow(path)))
            tasks.append(asyncio.create_task(viewer.ask(number)))
        await asyncio.sleep(2 * _POLL_S)  # By then all viewers are active.
        seen.answers.clear()
        seen.ages.clear()
        busy, begin = _processor_s(server), time.monotonic()
        while time.monotonic() - begin < seconds:
            memory.append(_rss_mb(server))
            await asyncio.sleep(_LOOK_S)
        share = (_processor_s(server) - busy) / (time.monotonic() - begin)
        broken = sum(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return _report(seen, memory, share, broken, viewers)


def _report(seen: Seen, memory: Sequence[float], share: float, broken: int, viewers: int) -> int:
    print(f"{'':32}{'answers':>9}{'p50':>9}{'p99':>9}{'most':>9}  ms")
    everything = [latency for latencies in seen.answers.values() for latency in latencies]
    for route, latencies in [*sorted(seen.answers.items()), ("all", everything)]:
        print(f"{route:32}{len(latencies):9}{_quantiles(latencies)}")
    print(f"{'age of events':32}{len(seen.ages):9}{_quantiles(seen.ages)}")
    third = len(memory) // 3 or 1
    print(
        f"memory of the server: {statistics.mean(memory[:third]):.1f} MB in the first third of the "
        f"time, {statistics.mean(memory[-third:]):.1f} MB in the last; {share:.0%} of a core"
    )
    for what, count in seen.failed.items():
        print(f"failed: {what}: {count}")
    if broken:
        print(f"{broken} tasks of viewers ended early")
    p99 = statistics.quantiles(everything, n=100)[98]
    holds = p99 <= _P99_MS and not seen.failed and not broken
    print(
        f"p99 of {viewers} viewers: {p99:.1f} ms, of {_P99_MS:.0f} ms{'' if holds else ': FAILED'}"
    )
    return 0 if holds else 1


def _quantiles(latencies: Sequence[float]) -> str:
    if len(latencies) < 2:
        return ""
    cuts = statistics.quantiles(latencies, n=100)
    return f"{cuts[49]:9.1f}{cuts[98]:9.1f}{max(latencies):9.1f}"


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait_for(url: str, server: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/readyz", trust_env=False).status_code == 200:
                return
        time.sleep(0.1)
    raise SystemExit("the server does not come up")


def _environment(home: Path) -> Mapping[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FARRIER_", "REDIS_"))}
    return {**kept, "FARRIER_HOME": str(home), "FARRIER_MIN_FREE_BYTES": "1"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.viewers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--long", type=int, default=0, help="trials of the job that is watched")
    parser.add_argument("--rate", type=float, default=50.0, help="of its trials, a second")
    options = parser.parse_args(arguments)
    home = Path(tempfile.mkdtemp(prefix="farrier-"))  # The path of a Unix socket has to be short.
    seeding = ["bench.seeded", str(home), "--jobs", options.jobs, "--trials", options.trials]
    seeding += ["--long", options.long, "--live", options.rate]
    try:
        with _running(list(map(str, seeding)), stdout=subprocess.PIPE) as seeded:
            size, *_, job, _live = _first_lines(seeded)
            print(size, flush=True)
            port = free_port()
            url, serving = f"http://127.0.0.1:{port}", ["farrier.cli", "serve", "--port", str(port)]
            with _running(serving, env=_environment(home), stderr=subprocess.DEVNULL) as server:
                _wait_for(url, server)
                token = (home / "user.token").read_text().strip()
                words = (url, token, job.rpartition(" ")[2], server.pid)
                return asyncio.run(_watch(*words, options.viewers, options.seconds))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
