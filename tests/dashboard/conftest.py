"""A service as users start it, and Chromium before its pages, with no way to any other host."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.pages.browser import launch
from farrier.hardware.figures import Figures
from farrier.targets.dae.description import Port, to_json
from farrier.targets.dae.machines import SMALL
from tests.up import Up, write_deep_model, write_model

# `make test` needs no Playwright, which the modules of the browser import.
collect_ignore_glob = [] if importlib.util.find_spec("playwright") else ["test_*.py"]

SHAPES = {"x": (1, 3, 13, 17)}
DESK = {"width": 1280, "height": 800}
PATIENCE_MS = 20_000  # The time limit on a machine that is busy with other work.
PHONE = {"width": 390, "height": 844}
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="session")
def up() -> Iterator[Up]:
    """One service for all tests that break nothing of it."""
    running = Up(Path(tempfile.mkdtemp(prefix="farrier-"))).start()
    try:
        yield running
    finally:
        running.clean_up()
        shutil.rmtree(running.home, ignore_errors=True)


@pytest.fixture
def own_up() -> Iterator[Up]:
    """A service that the test may stop, on a port that it takes again."""
    running = Up(Path(tempfile.mkdtemp(prefix="farrier-"))).start()
    try:
        yield running
    finally:
        running.clean_up()
        shutil.rmtree(running.home, ignore_errors=True)


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model's file."""
    return write_model(tmp_path_factory.mktemp("models") / "net.onnx")


@pytest.fixture(scope="session")
def deep_network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a model that is tuned for minutes."""
    return write_deep_model(tmp_path_factory.mktemp("models") / "deep.onnx")


@pytest.fixture(scope="session")
def finished(up: Up, network: Path) -> tuple[str, str]:
    """The ids of two jobs that have tuned the small model."""
    with up.client() as client:
        ids = [
            client.submit(network, shapes=SHAPES, trials=trials, name=f"tuned {trials}").id
            for trials in (8, 16)
        ]
        for job in ids:
            client.wait(job).raise_for_state()
    return ids[0], ids[1]


@pytest.fixture(scope="session")
def explored(up: Up, finished: tuple[str, str]) -> str:
    """The id of an exploration of two shapes, with figures of one model and none of another."""
    return explore(up, "sizes", ("small", "wide"), ("a.onnx", "b.onnx"), finished)


def explore(
    up: Up, name: str, shapes: Sequence[str], models: Sequence[str], jobs: Sequence[str]
) -> str:
    """Store an exploration of two shapes with these names, and the figures of the first model;
    `jobs` are shown as its jobs. Return its id."""
    ports = (4, 8)
    descriptions = [
        to_json(dataclasses.replace(SMALL, name=shape, port=Port(port, 30)))
        for shape, port in zip(shapes, ports, strict=True)
    ]
    with up.client() as client:
        store = client.explorations
        exploration = store.create(name, descriptions, models).id
        for shape, job, cycles in zip(shapes, jobs, (123_000, 45_600), strict=True):
            figures = Figures(cycles, cycles / 1e5, None, 0.9, 1, "too narrow")
            store.set_result(
                exploration, models[0], shape, job=job, figures=dataclasses.asdict(figures)
            )
    return exploration


@pytest.fixture
def once_closed() -> Iterator[contextlib.ExitStack]:
    """A stack that is closed after a test's pages, which still send requests while they are
    open."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def running(up: Up, deep_network: Path, once_closed: contextlib.ExitStack) -> str:
    """The id of a job that tunes for as long as the test wants to watch it."""
    client = once_closed.enter_context(up.client())
    job = client.submit(deep_network, shapes=SHAPES, trials=100_000, name="under way").id
    once_closed.callback(client.delete, job)
    return job


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()


class Watch:
    """Everything that goes wrong in a page: errors of the console, scripts that fail, violated
    policies, and requests to any host but the service."""

    def __init__(self, context: Any, origin: str) -> None:
        self.faults: list[str] = []
        self._origin = urlsplit(origin).netloc
        self._expected: list[str] = []
        context.on("console", self._console)
        context.on("weberror", lambda error: self.faults.append(f"script: {error.error}"))
        context.on("request", self._request)

    def expect(self, *patterns: str) -> None:
        """Faults that the test brings about itself."""
        self._expected += patterns

    def check(self) -> None:
        faults = [
            fault
            for fault in self.faults
            if not any(re.search(pattern, fault) for pattern in self._expected)
        ]
        assert not faults, "\n".join(faults)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            where = message.location.get("url", "")
            self.faults.append(f"console: {message.text} at {where}")

    def _request(self, request: Any) -> None:
        place = urlsplit(request.url)
        if place.scheme not in ("data", "blob") and place.netloc != self._origin:
            self.faults.append(f"foreign: {request.url}")


Visit = Callable[..., Any]


@pytest.fixture
def visit(browser: Any, once_closed: contextlib.ExitStack) -> Iterator[Visit]:
    """`visit(up, logged_in=True, **options)`: a page of a service, in a browser of its own; the
    options are those of Playwright's contexts. Nothing may go wrong behind it: see `page.watch`."""
    open_ones: list[tuple[Any, Watch]] = []

    def start(up: Up, *, logged_in: bool = True, **options: Any) -> Any:
        options = {"viewport": DESK, "base_url": up.url, **options}
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        watch = Watch(context, options["base_url"])
        if logged_in:
            answer = context.request.post("/v1/session", data={"token": up.token})
            assert answer.ok, answer.text()
        page = context.new_page()
        # It is caught from now on, because an `expect` may come too late.
        page.on("filechooser", lambda _: None)
        page.watch = watch
        open_ones.append((context, watch))
        return page

    yield start
    for context, _ in open_ones:
        context.close()
    for _, watch in open_ones:
        watch.check()


@pytest.fixture
def page(visit: Visit, up: Up) -> Any:
    """A page of the service, logged in."""
    return visit(up)


@pytest.fixture
def api(up: Up) -> Iterator[Any]:
    """The service's REST API, with the user's token."""
    import httpx

    headers = {"Authorization": f"Bearer {up.token}"}
    with httpx.Client(base_url=up.url, headers=headers, timeout=30) as http:
        yield http


class Device:
    """A second agent of a service, which nobody starts again."""

    def __init__(self, up: Up, name: str, folder: Path) -> None:
        (first,) = up.pids("farrier_device --broker")
        command = Path(f"/proc/{first}/cmdline").read_bytes().decode().split("\0")
        words = [
            *("--broker", command[command.index("--broker") + 1]),
            *("--token-file", str(up.home / "device.token")),
            *("--state", str(folder), "--name", name),
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "farrier.cli", "device", *words],
            env=up.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start_device(tmp_path: Path) -> Iterator[Callable[[Up, str], Device]]:
    """Start agents, and end them."""
    started: list[Device] = []

    def start(up: Up, name: str) -> Device:
        started.append(Device(up, name, tmp_path / name))
        return started[-1]

    yield start
    for device in started:
        device.kill()


class Proxy:
    """A way to a service that can be cut: its connections end, and new ones are let through."""

    def __init__(self, url: str) -> None:
        self._there = urlsplit(url)
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._server = self._done(asyncio.start_server(self._pass, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._done(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        self._done(self._cut())

    def _done(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _cut(self) -> None:
        for connection in self._open:
            connection.transport.abort()

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        while self._open:
            await asyncio.sleep(0.01)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(self._there.hostname, self._there.port)
        ends = {writer, there[1]}
        self._open |= ends
        ways = [(reader, there[1]), (there[0], writer)]
        await asyncio.gather(*(self._one_way(*way) for way in ways))
        self._open -= ends

    async def _one_way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65_536):
                writer.write(piece)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
