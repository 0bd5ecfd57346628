"""A broker to dial, and certificates for the tests of TLS."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from farrier_device.protocol import channel, device_pb2, device_pb2_grpc
from farrier_device.protocol.credentials import Bearer
from farrier_farm.access.tokens import TokenRole, load_token
from farrier_farm.farm import Farm
from farrier_server.broker.serving import Broker


@dataclasses.dataclass
class RunningBroker:
    """A broker in a thread of this process, the farm behind it, and channels to it."""

    address: str
    token: str
    farm: Any
    stop: Callable[[], None]
    closing: contextlib.ExitStack

    def stub(self, token: str | None = None, credentials: Any = None, caller: object = None) -> Any:
        """The calls, as one who holds `token`, or as another `caller`."""
        options = channel.CLIENT_OPTIONS
        if credentials is None:
            link = grpc.insecure_channel(self.address, options)
        else:
            link = grpc.secure_channel(self.address, credentials, options)
        self.closing.enter_context(link)
        caller = caller or Bearer(self.token if token is None else token)
        metadata = [("authorization", str(caller))]
        return Calls(device_pb2_grpc.BrokerStub(link), metadata)


class Calls:
    """A stub whose calls carry the token and a deadline, which a test that stands still for a
    while does not reach."""

    def __init__(self, stub: Any, metadata: list[tuple[str, str]]) -> None:
        self.stub = stub
        self.metadata = metadata

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(request: Any, timeout: float = 280.0) -> Any:
            return getattr(self.stub, name)(request, metadata=self.metadata, timeout=timeout)

        return call

    def register(self, device_id: str, instance: str = "", **description: Any) -> Any:
        """The session of a device that is as this machine: a new one, unless its instance is
        named."""
        from farrier_device import describe

        fields = {**dataclasses.asdict(describe.describe()), **description}
        reply = self.Register(
            device_pb2.RegisterRequest(
                device_id=device_id,
                instance=instance or secrets.token_hex(8),
                description=device_pb2.Description(**fields),
            )
        )
        return device_pb2.Session(device_id=device_id, id=reply.session)


@pytest.fixture
def start_broker() -> Iterator[Callable[..., RunningBroker]]:
    """Start brokers, `start_broker(settings, port=0)`, and stop them when the test ends."""
    running: list[RunningBroker] = []

    def start(settings: Any, port: int = 0) -> RunningBroker:
        farm = Farm.open(settings)
        started = threading.Event()
        state: dict[str, Any] = {}

        async def serve() -> None:
            broker = Broker(farm, "127.0.0.1", port)
            state["address"] = await broker.start()
            state["loop"], state["stop"] = asyncio.get_running_loop(), asyncio.Event()
            started.set()
            await state["stop"].wait()
            await broker.stop()

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        assert started.wait(20)
        closing = contextlib.ExitStack()
        closing.callback(farm.close)

        def stop() -> None:
            if thread.is_alive():
                state["loop"].call_soon_threadsafe(state["stop"].set)
                thread.join(20)
                assert not thread.is_alive()

        token = load_token(settings, TokenRole.DEVICE)
        broker = RunningBroker(state["address"], token or "", farm, stop, closing)
        running.append(broker)
        return broker

    yield start
    for broker in running:
        broker.stop()
        broker.closing.close()


@pytest.fixture
def broker(farm_settings: Any, start_broker: Callable[..., RunningBroker]) -> RunningBroker:
    return start_broker(farm_settings)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> tuple[pathlib.Path, pathlib.Path]:
    """A self-signed certificate of 127.0.0.1 and localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=IP:127.0.0.1,DNS:localhost -keyout {key} -out {cert}",
        shell=True,
        check=True,
        capture_output=True,
    )
    return cert, key
