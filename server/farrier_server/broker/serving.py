"""The broker's process: it listens on a port, and shuts down gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio

from farrier.errors import UsageError
from farrier_device import alive
from farrier_device.protocol import channel, device_pb2_grpc
from farrier_farm.access.tokens import TokenRole, device_key, load_token
from farrier_farm.broker import DeviceSide
from farrier_farm.devices.async_enrolments import Enrolling, Secrets
from farrier_farm.devices.devices import missing_layers
from farrier_farm.farm import Farm
from farrier_farm.settings import Settings
from farrier_server import exposure
from farrier_server.broker.authentication import AuthenticatingInterceptor, Authenticator
from farrier_server.broker.dispatcher import Dispatcher
from farrier_server.broker.service import BrokerService

GRACE_S = 5.0
_log = logging.getLogger(__name__)


class Broker:
    """A gRPC server for an open farm. `start` and `stop` are called on the same event loop."""

    def __init__(self, farm: Farm, host: str, port: int) -> None:
        self._farm = farm
        self._host = f"[{host}]" if ":" in host else host
        self._port = port
        self._tls = exposure.secure(farm.settings, host)
        token = load_token(farm.settings, TokenRole.DEVICE, create=True)
        assert token is not None
        self._secrets = Secrets(device_key(farm.settings))
        self._authenticator = Authenticator(token, self._secrets)

    async def start(self) -> str:
        """Listen, and return the address as `host:port`. Raises UsageError if the address is in
        use.

        Sessions of devices outlive a broker. `start` therefore ends the sessions of devices whose
        sandbox is too weak for this broker's settings; such a device is refused when it registers
        again.
        """
        self._device_side = DeviceSide.of(self._farm)
        self._dispatcher = Dispatcher(self._device_side)
        enrolling = Enrolling(self._device_side.client, self._farm.settings, self._secrets)
        service = BrokerService(
            self._farm, self._device_side, self._dispatcher, self._authenticator, enrolling
        )
        self._server = grpc.aio.server(
            interceptors=[AuthenticatingInterceptor(self._authenticator)],
            options=channel.SERVER_OPTIONS,
        )
        add = device_pb2_grpc.add_BrokerServicer_to_server
        add(service, self._server)  # type: ignore[no-untyped-call]
        address = f"{self._host}:{self._port}"
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(address)
            else:
                cert, key = self._tls.read()
                credentials = grpc.ssl_server_credentials([(key, cert)])
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise UsageError(
                f"cannot listen on {address}: {error}",
                hint="another broker may be running there; --port selects another port",
            ) from error
        await self._close_weak_sessions()
        self._dispatching = asyncio.create_task(self._dispatcher.run())
        await self._server.start()
        return f"{self._host}:{port}"

    async def stop(self) -> None:
        """Finish the calls in progress, including calls that wait for a batch, and accept no more
        calls."""
        self._dispatcher.stop()
        await self._server.stop(GRACE_S)
        self._dispatching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._dispatching
        await self._dispatcher.close()
        await self._device_side.close()

    async def _close_weak_sessions(self) -> None:
        layers = self._farm.settings.sandbox
        for device in await asyncio.to_thread(self._farm.devices.list):
            if device.session and missing_layers(layers, device.description):
                await self._device_side.sessions.close(device.id)
                _log.warning(
                    "device %s must register again: this farm requires %s", device.id, layers
                )


def run(
    settings: Settings, host: str, port: int, ready: Callable[[str], None] | None = None
) -> None:
    """Serve the broker until SIGTERM or SIGINT."""
    exposure.secure(settings, host)  # An unsafe address is refused before anything is opened.
    farm = Farm.open(settings)
    try:
        with farm.announcing("broker"):
            asyncio.run(_serve(Broker(farm, host, port), settings.signs, ready))
    finally:
        farm.close()


async def _serve(broker: Broker, signs: Path, ready: Callable[[str], None] | None) -> None:
    stop = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
    address = await broker.start()
    _log.info("the broker listens on %s", address)
    if ready is not None:
        ready(address)
    async with alive.renewed(signs, "broker"):
        with contextlib.suppress(asyncio.CancelledError):
            await stop.wait()
    await broker.stop()
