"""A connection that breaks."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.parse

import pytest


class CuttingProxy:
    """A proxy that forwards TCP to a server; each connection is cut after a number of bytes in each
    direction."""

    def __init__(self, url: str, budgets: list[int]) -> None:
        where = urllib.parse.urlsplit(url)
        self._target = (where.hostname, where.port)
        self._budgets = budgets  # The budgets of the next connections; later ones are not cut.
        self._links: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        for link in (self._listener, *self._links):
            self._cut(link)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._links += [near, far]
                self.connections += 1
                budget = self._budgets.pop(0) if self._budgets else 1 << 60
                self._threads.append(threading.Thread(target=self._serve, args=(near, far, budget)))
                self._threads[-1].start()

    def _serve(self, near: socket.socket, far: socket.socket, budget: int) -> None:
        with near, far:
            back = threading.Thread(target=self._forward, args=(far, near, budget))
            back.start()
            self._forward(near, far, budget)
            back.join()

    def _forward(self, source: socket.socket, sink: socket.socket, budget: int) -> None:
        with contextlib.suppress(OSError):
            while budget > 0 and (data := source.recv(min(budget, 1 << 16))):
                sink.sendall(data)
                budget -= len(data)
        self._cut(source)
        self._cut(sink)

    @staticmethod
    def _cut(link: socket.socket) -> None:
        with contextlib.suppress(OSError):
            link.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cut(service):
    proxies = []

    def start(*budgets: int) -> CuttingProxy:
        proxies.append(CuttingProxy(service.url, list(budgets)))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()
