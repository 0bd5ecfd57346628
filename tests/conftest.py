"""Fixtures that the tests of several roles share: a farm on its own Valkey, and a server in front
of it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

# Classes of tests that several modules subclass: what they compare is shown as in a test module.
pytest.register_assert_rewrite(
    "tests.records.record_store_contract", "tests.measure.runner_contract"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write what is made anew into tests/golden"
    )
    parser.addoption(
        "--explore", action="store_true", help="draw new random examples, and ten times as many"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow a test marked `long` half an hour: on a busy machine some take more than the 300 s of
    other tests."""
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1800))


def pytest_configure(config: pytest.Config) -> None:
    """Draw the same examples of property tests in every run, so that a change is judged by its own
    effect; `--explore` looks for new ones. On a busy machine neither a slow example nor slow
    generation fails a test.

    A shell that starts the tests in the background has them ignore Ctrl-C, and so would all that
    they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    explore = config.getoption("--explore")
    hypothesis.settings.register_profile(
        "farrier",
        derandomize=not explore,
        max_examples=1000 if explore else 100,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("farrier")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Return whether a golden's text should be rewritten instead of compared."""
    return bool(request.config.getoption("--update-golden"))


class Installation:
    """A home with a running Valkey, which a test may kill and start again."""

    def __init__(self, home: pathlib.Path) -> None:
        from farrier_farm.settings import Settings

        self.settings = Settings(home=home, min_free_bytes=0, device_expiry_s=2.0)
        self.start_redis()

    def start_redis(self) -> None:
        from farrier_farm.redis import embedded

        self._valkey = embedded.start(self.settings)

    def stop_redis(self) -> None:
        self._valkey.stop()

    def kill_redis(self) -> None:
        os.kill(self._valkey.pid, signal.SIGKILL)
        self._valkey.stop()

    @property
    def redis_url(self) -> str:
        return self._valkey.url

    @contextlib.contextmanager
    def redis_stands_still(self) -> Iterator[None]:
        """It takes connections and answers nothing."""
        pid = self._valkey.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def installation() -> Iterator[Installation]:
    """An installation of its own.

    Its home is not `tmp_path`: the path of a unix socket has 107 bytes at most.
    """
    home = pathlib.Path(tempfile.mkdtemp(prefix="farrier-"))
    running = Installation(home)
    try:
        yield running
    finally:
        running.stop_redis()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def farm_settings(installation: Installation) -> Any:
    """The settings of a farm whose Valkey runs."""
    return installation.settings


@dataclasses.dataclass(frozen=True)
class Service:
    """A REST server of this process on a free port, and the farm behind it."""

    url: str
    token: str
    settings: Any
    farm: Any
    server: Any
    closing: contextlib.ExitStack

    def client(self, **options: Any) -> Any:
        """The SDK, connected."""
        from farrier.sdk.client import Client

        return Client(self.url, self.token, **options)

    def http(self) -> Any:
        """Plain HTTP with the token; closed when the test ends."""
        import httpx

        headers = {"Authorization": f"Bearer {self.token}"}
        http = httpx.Client(base_url=self.url, headers=headers, timeout=30)
        return self.closing.enter_context(http)


@pytest.fixture
def start_service() -> Iterator[Callable[..., Service]]:
    """Start servers, `start_service(settings, port=0)`, and stop them when the test ends."""
    from farrier_farm.access.tokens import TokenRole, load_token
    from farrier_farm.farm import Farm
    from farrier_server.serve import api_server

    running: list[tuple[Service, threading.Thread]] = []

    def start(settings: Any, port: int = 0) -> Service:
        ready = threading.Event()
        server = api_server(settings, port=port, ready=lambda _: ready.set())
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        assert ready.wait(20)
        token = load_token(settings, TokenRole.USER)
        closing = contextlib.ExitStack()
        farm = Farm.open(settings)
        closing.callback(farm.close)
        service = Service(server.url, token or "", settings, farm, server, closing)
        running.append((service, thread))
        return service

    yield start
    for service, thread in running:
        service.closing.close()
        service.server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def device_side(service: Service) -> Iterator[Any]:
    """The broker's side of the devices of the service's farm."""
    from tests.device_side import BlockingDeviceSide

    with BlockingDeviceSide(service.farm) as side:
        yield side


@pytest.fixture
def service(farm_settings: Any, start_service: Callable[..., Service]) -> Service:
    """A running server on a farm of its own."""
    return start_service(farm_settings)
