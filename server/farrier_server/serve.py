"""The two server processes, `run_api` and `run_broker`, for `farrier serve` and `farrier broker`.
After SIGTERM or SIGINT each of them finishes its requests, or hands them back to the queue, and
returns."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from farrier_device import logs
from farrier_device.alive import sign_of_life
from farrier_farm.access.tokens import TokenRole, load_token
from farrier_farm.farm import Farm
from farrier_farm.redis import embedded
from farrier_farm.redis.retry import PROMPT
from farrier_farm.roles.notifier import Notifier
from farrier_farm.settings import Settings
from farrier_server import connections, exposure
from farrier_server.app import create_app
from farrier_server.broker import serving
from farrier_server.connections import Connections
from farrier_server.context import Context

HEADER_BYTES = 32 << 10
GRACE_S = 10  # The time for requests in progress; event streams end at once.

Ready = Callable[[str], None]
"""A function that is called with the URL (API) or the address (broker) once the server accepts
connections."""


def run_api(
    settings: Settings,
    *,
    host: str | None = None,
    port: int | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    ready: Ready | None = None,
) -> None:
    """Serve the REST API until SIGTERM or SIGINT. Each argument that is None takes its value from
    `settings`.

    Starts the embedded Valkey if the settings name no Redis, and creates the user token if the
    installation has none. Raises UsageError for an address that is in use or not permitted,
    ServiceError without Redis.
    """
    logs.set_up("serve", settings.log)
    connections.raise_file_limit()
    settings = _with(settings, tls_cert, tls_key)
    exposure.secure(settings, settings.api_host if host is None else host)
    valkey = embedded.start(settings) if settings.redis_url is None else None
    try:
        server = api_server(settings, host=host, port=port, ready=ready)
        with server.farm.announcing("serve"):
            server.run()
    finally:
        if valkey is not None:
            valkey.stop()


def run_broker(
    settings: Settings,
    *,
    host: str | None = None,
    port: int | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    ready: Ready | None = None,
) -> None:
    """Serve the gRPC broker for devices until SIGTERM or SIGINT. The arguments and errors are the
    same as for `run_api`; the installation's token for devices is created if there is none."""
    logs.set_up("broker", settings.log)
    connections.raise_file_limit()
    settings = _with(settings, tls_cert, tls_key)
    serving.run(
        settings,
        settings.broker_host if host is None else host,
        settings.broker_port if port is None else port,
        ready,
    )


def api_server(
    settings: Settings,
    *,
    host: str | None = None,
    port: int | None = None,
    ready: Ready | None = None,
) -> ApiServer:
    """Return a server with a bound socket, which `ApiServer.run` starts."""
    host = settings.api_host if host is None else host
    tls = exposure.secure(settings, host)
    token = load_token(settings, TokenRole.USER, create=True)
    assert token is not None
    listener = exposure.listen(host, settings.api_port if port is None else port)
    try:
        farm = Farm.open(settings, PROMPT)
    except BaseException:
        listener.close()
        raise
    app = create_app(farm, token)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=connections.HEAD_S,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=None if tls is None else tls.cert,
        ssl_keyfile=None if tls is None else tls.key,
    )
    where = exposure.url("http" if tls is None else "https", host, listener.getsockname()[1])
    return ApiServer(config, farm, app.state.context, listener, where, ready)


class ApiServer(uvicorn.Server):
    """A uvicorn server on a socket that is already bound. Its event streams end at shutdown."""

    def __init__(
        self,
        config: uvicorn.Config,
        farm: Farm,
        context: Context,
        listener: socket.socket,
        where: str,
        ready: Ready | None,
    ) -> None:
        super().__init__(config)
        self.url = where
        self.farm = farm
        self._context = context
        self._listener = listener
        self._ready = ready
        self._connections = Connections()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal arrives, or until another thread sets `should_exit`."""
        try:
            with (
                sign_of_life(self.farm.settings.signs, "serve") as self._sign,
                Notifier(self.farm),
            ):
                super().run([self._listener])
        finally:
            self._listener.close()
            self.farm.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does with a bound socket, but with a separate time limit for TLS
        handshakes."""
        config = self.config
        server = await asyncio.get_running_loop().create_server(
            functools.partial(
                self._connections, config=config, server_state=self.server_state, app_state={}
            ),
            sock=self._listener,
            backlog=config.backlog,
            ssl=config.ssl,
            ssl_handshake_timeout=None if config.ssl is None else connections.HANDSHAKE_S,
        )
        self.servers = [server]
        self.started = True
        if self._ready is not None:
            self._ready(self.url)

    async def on_tick(self, counter: int) -> bool:
        self._sign.renew()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._context.stopping.set()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Return a context that captures signals as uvicorn does, but does not raise a handled
        signal again at its end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _with(settings: Settings, tls_cert: Path | None, tls_key: Path | None) -> Settings:
    return dataclasses.replace(
        settings, tls_cert=tls_cert or settings.tls_cert, tls_key=tls_key or settings.tls_key
    )
