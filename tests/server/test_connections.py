"""Clients that are slow, or say nothing at all, in great numbers: everybody else is served."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from farrier_server import connections, gate, limits
from farrier_server.api import uploads
from farrier_server.problems import MEDIA_TYPE
from tests.here import TARGET
from tests.server.test_serve import PROGRAM
from tests.waiting import wait_until

HALF = b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: "
PATIENCE_S = 60.0  # The time limit of a test; on an idle machine its events come within seconds.


def connect(url: str) -> socket.socket:
    where = urllib.parse.urlsplit(url)
    return socket.create_connection((where.hostname, where.port), PATIENCE_S)


def read_all(link: socket.socket) -> bytes:
    """Return everything until the server closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := link.recv(1 << 16):
            data += part
    return data


def trickled(link: socket.socket, byte: bytes) -> bytes:
    """Return the server's answer to a client that sends a byte from time to time, without end."""
    link.settimeout(0.05)
    answer = b""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            link.sendall(byte)
            if not (part := link.recv(1 << 16)):
                return answer
            answer += part
        except TimeoutError:
            pass
        except ConnectionError:  # A byte arrived after the end of the connection.
            return answer + read_all(link)
    pytest.fail(f"the server still waits, and has said {answer!r}")


@pytest.fixture
def process(farm_settings) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: its URL and id."""
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format("run_api")],
        env={**os.environ, "FARRIER_HOME": str(farm_settings.home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield running.stdout.readline().strip(), running.pid
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


def resident(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) << 10


def test_two_thousand_that_say_too_little(process, farm_settings):
    """Half of them send half a request, half of them nothing, none a token. They take little
    memory, and the same number again, after they are gone, takes no more."""
    url, pid = process
    connections.raise_file_limit()
    token = (farm_settings.home / "user.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    peaks = [resident(pid)]
    with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S) as http:
        for _ in range(2):
            with contextlib.ExitStack() as stack:
                for index in range(2000):
                    link = stack.enter_context(connect(url))
                    if index % 2:
                        link.sendall(HALF)
                    if index % 250 == 249:
                        answers = http.get("/v1/jobs"), httpx.get(f"{url}/v1/jobs", headers=headers)
                        assert [answer.status_code for answer in answers] == [200, 200], index
                peaks.append(resident(pid))
    assert peaks[1] < peaks[0] + (100 << 20), peaks
    assert peaks[2] < peaks[1] + (20 << 20), peaks


def test_the_longest_in_waiting_goes_for_the_newest(farm_settings, start_service, monkeypatch):
    """No request in progress is ended. If all connections have one, the newest gets an error."""
    from farrier.options import CompileOptions

    monkeypatch.setattr(connections, "MOST", 20)
    service = start_service(farm_settings)
    job = service.farm.jobs.submit(service.farm.blobs.put(b"model"), CompileOptions(target=TARGET))
    watch = (
        f"GET /v1/jobs/{job.id}/events HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {service.token}\r\n\r\n"
    ).encode()
    with contextlib.ExitStack() as stack:
        oldest = stack.enter_context(connect(service.url))
        oldest.sendall(watch)
        assert oldest.recv(15) == b"HTTP/1.1 200 OK"
        halves = [stack.enter_context(connect(service.url)) for _ in range(30)]
        headers = {"Authorization": f"Bearer {service.token}"}
        assert httpx.get(f"{service.url}/v1/jobs", headers=headers).status_code == 200
        assert [read_all(link) for link in halves[:11]] == [b""] * 11
        watchers = [oldest, *(stack.enter_context(connect(service.url)) for _ in range(19))]
        for link in watchers[1:]:
            link.sendall(watch)
            assert link.recv(15) == b"HTTP/1.1 200 OK"
        refusal = read_all(stack.enter_context(connect(service.url))).decode()
        assert refusal.startswith("HTTP/1.1 503 Service Unavailable\r\n")
        assert f"content-type: {MEDIA_TYPE}\r\n" in refusal
        assert re.search(r"\r\nretry-after: [1-9]\d*\r\n", refusal)
        service.farm.jobs.cancel(job.id)
        for link in watchers:
            assert b'"cancelled"' in until(link, b'"cancelled"')
    assert service.http().get("/v1/jobs").status_code == 200


def test_who_has_no_token_holds_no_place(installation, start_service, monkeypatch):
    """Not even with a request that takes its time."""
    monkeypatch.setattr(connections, "MOST", 20)
    service = start_service(installation.settings)
    with installation.redis_stands_still(), contextlib.ExitStack() as stack:
        for _ in range(20):
            link = stack.enter_context(connect(service.url))
            link.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(20):
            assert httpx.get(f"{service.url}/v1/jobs").status_code == 401


def until(link: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data and (part := link.recv(1 << 16)):
        data += part
    return data


def test_connections_leave_room_for_other_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1024), hard))
        assert connections.Connections().most <= 512
        connections.raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(hard, 1 << 16)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_requests_at_once_are_bounded(service, monkeypatch):
    monkeypatch.setitem(limits.PLACES, limits.Pool.REQUESTS, 0)
    answer = service.http().get("/v1/jobs")
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.json()["code"] == "service"
    assert httpx.get(f"{service.url}/healthz").status_code == 200


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_head_that_trickles_ends(service, monkeypatch, before):
    """This holds for the first head of a connection, and for a later one."""
    monkeypatch.setattr(connections, "HEAD_S", 1.5)
    with connect(service.url) as link:
        link.sendall(before + HALF)
        answer = trickled(link, b"x").decode()
    assert answer.count("HTTP/1.1 200 OK") == bool(before)
    assert "HTTP/1.1 408 Request Timeout" in answer
    assert MEDIA_TYPE in answer


def test_a_silent_connection_ends(service, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    with connect(service.url) as link:
        assert read_all(link) == b""


def test_a_silent_handshake_ends(farm_settings, start_service, certificate, monkeypatch):
    import dataclasses

    monkeypatch.setattr(connections, "HANDSHAKE_S", 2.5)
    cert, key = certificate
    service = start_service(dataclasses.replace(farm_settings, tls_cert=cert, tls_key=key))
    with connect(service.url) as link:
        assert read_all(link) == b""
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    context = ssl.create_default_context(cafile=cert)
    with context.wrap_socket(connect(service.url), server_hostname="localhost") as link:
        assert read_all(link) == b""


def test_a_body_that_trickles_ends_and_is_kept(service, monkeypatch):
    monkeypatch.setattr(uploads, "STEP_S", 1.5)
    http = service.http()
    upload = http.post("/v1/uploads", json={"size": 100_000, "sha256": "0" * 64}).json()
    with connect(service.url) as link:
        link.sendall(
            f"PATCH /v1/uploads/{upload['id']} HTTP/1.1\r\nHost: x\r\nUpload-Offset: 0\r\n"
            f"Authorization: Bearer {service.token}\r\nContent-Length: 100000\r\n\r\n".encode()
        )
        assert trickled(link, b"x").startswith(b"HTTP/1.1 200")
    assert http.get(f"/v1/uploads/{upload['id']}").json()["offset"] > 0


def test_a_json_body_that_trickles_is_408(service, monkeypatch):
    monkeypatch.setattr(gate, "BODY_TIMEOUT_S", 0.5)
    with connect(service.url) as link:
        link.sendall(
            f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.token}\r\n"
            "Content-Length: 100000\r\n\r\n".encode()
        )
        assert trickled(link, b" ").startswith(b"HTTP/1.1 408")


def test_a_body_that_nobody_asked_for_is_not_gathered(service):
    """This holds for a path that needs no token, and for a path that needs one."""
    for path in ("/healthz", "/v1/jobs"):
        with connect(service.url) as link:
            link.sendall(
                f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n".encode()
            )
            assert re.match(rb"HTTP/1.1 4(01|05) ", link.recv(1000))


def test_an_answer_that_nobody_reads_ends(service, monkeypatch):
    """And its file is closed; who reads slowly, but reads, gets all of it."""
    from farrier.options import CompileOptions

    monkeypatch.setattr(connections, "STALL_S", 2.5)
    data = bytes(64 << 20)
    jobs = service.farm.jobs
    job = jobs.submit(service.farm.blobs.put(b"model"), CompileOptions(target=TARGET))
    jobs.succeed(jobs.lease("w", 1), service.farm.blobs.put(data), {})
    ask = (
        f"GET /v1/jobs/{job.id}/artifact HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Authorization: Bearer {service.token}\r\n\r\n"
    ).encode()
    with connect(service.url) as deaf, connect(service.url) as slow:
        deaf.sendall(ask)
        slow.sendall(ask)
        got = 0
        while part := slow.recv(1 << 20):
            got += len(part)
            time.sleep(0.01)
        assert got > len(data)
        wait_until(lambda: not service.server.server_state.connections, "the connection stays")
        assert len(read_all(deaf)) < len(data)


def test_silent_connections_keep_no_device_from_the_broker(broker):
    connections.raise_file_limit()
    with contextlib.ExitStack() as stack:
        for index in range(1000):
            link = stack.enter_context(connect(f"http://{broker.address}"))
            link.sendall(b"PRI * HTTP/2.0\r\n\r\n"[: index % 19])
        assert broker.stub().register("board").id
