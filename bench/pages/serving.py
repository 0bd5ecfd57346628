"""The REST API without workers: `farrier serve` in its own process with a temporary home. Submitted
jobs stay queued."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from farrier.errors import ServiceError
from farrier_farm.access.tokens import TokenRole, load_token
from farrier_farm.settings import Settings

_STARTS_S = 30.0


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, str, Settings]]:
    """A context in which the API runs. It yields its address, the user's token, and the settings
    with which a `Farm` on it is opened."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    home = Path(tempfile.mkdtemp(prefix="farrier-"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FARRIER_", "REDIS_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "farrier.cli", "serve", "--port", url.rpartition(":")[2]],
        env={**environment, "FARRIER_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _await(url, process)
        settings = Settings(home=home)
        yield url, load_token(settings, TokenRole.USER) or "", settings
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        shutil.rmtree(home, ignore_errors=True)


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTS_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        time.sleep(0.1)
    raise ServiceError(f"`farrier serve` did not come up at {url}")
