"""Tests of the addresses at which servers may listen, and of their start and end."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading

import httpx
import pytest

from farrier.errors import ServiceError, StorageError, UsageError
from farrier_farm.settings import Settings
from farrier_server import commands, exposure
from tests.here import TARGET

PROGRAM = """
from farrier_farm.settings import Settings
from farrier_server import serve
serve.GRACE_S = 200  # longer than a test waits: streams do not end by it
serve.{0}(Settings.from_environment(), port=0, ready=lambda where: print(where, flush=True))
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_needs_no_certificate(tmp_path, host):
    assert exposure.secure(Settings(home=tmp_path), host) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "build.example"])
def test_other_addresses_need_one(tmp_path, host):
    with pytest.raises(UsageError, match="without TLS") as refused:
        exposure.secure(Settings(home=tmp_path), host)
    assert "FARRIER_TLS_CERT" in refused.value.hint


@pytest.mark.parametrize("verb", ["serve", "broker"])
def test_the_commands_refuse_to_be_reached_without_tls(verb, farm_settings, monkeypatch):
    monkeypatch.setenv("FARRIER_HOME", str(farm_settings.home))
    with pytest.raises(UsageError, match=r"0\.0\.0\.0 without TLS"):
        getattr(commands, verb)(host="0.0.0.0", port=0)


def test_private_network_must_be_named_and_is_warned_of(tmp_path, caplog):
    settings = Settings(home=tmp_path, insecure_private_network=True)
    assert exposure.secure(settings, "0.0.0.0") is None
    assert "WITHOUT TLS" in caplog.text


def test_half_a_certificate_is_refused(tmp_path):
    with pytest.raises(UsageError, match="only one of them is set"):
        exposure.secure(Settings(home=tmp_path, tls_cert=tmp_path / "cert.pem"), "127.0.0.1")


def test_missing_certificate_is_named(tmp_path):
    settings = Settings(home=tmp_path, tls_cert=tmp_path / "c.pem", tls_key=tmp_path / "k.pem")
    with pytest.raises(StorageError, match=r"c\.pem"):
        exposure.secure(settings, "0.0.0.0")


def test_taken_port_is_a_usage_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match="cannot listen"):
            exposure.listen("127.0.0.1", port)


def test_no_redis_is_a_service_error(tmp_path):
    from farrier_server.serve import api_server

    with pytest.raises(ServiceError):
        api_server(Settings(home=tmp_path), port=0)


def test_tls_serves_https(farm_settings, start_service, certificate):
    from farrier.sdk.client import Client

    cert, key = certificate
    settings = dataclasses.replace(farm_settings, tls_cert=cert, tls_key=key)
    service = start_service(settings)
    assert service.url.startswith("https://127.0.0.1:")
    with Client(service.url, service.token, ca=cert) as client:
        assert client.devices() == []
    distrusting = Client(service.url, service.token)
    with distrusting, pytest.raises(ServiceError, match="certificate"):
        distrusting.devices()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_streams_and_server(farm_settings, number):
    environment = {**os.environ, "FARRIER_HOME": str(farm_settings.home)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format("run_api")],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = process.stdout.readline().strip()
        token = (farm_settings.home / "user.token").read_text().strip()
        watched = _watch_a_job(farm_settings, url, token)
        process.send_signal(number)
        assert process.wait(60) == 0
        watched.join(60)
        assert not watched.is_alive()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_broker(farm_settings, number):
    environment = {**os.environ, "FARRIER_HOME": str(farm_settings.home)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format("run_broker")],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        host, _, port = process.stdout.readline().strip().rpartition(":")
        assert host == "127.0.0.1"
        socket.create_connection((host, int(port)), 5).close()
        process.send_signal(number)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_taken_broker_port_is_a_usage_error(farm_settings):
    from farrier_server.serve import run_broker

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=str(port)):
            run_broker(farm_settings, port=port)


def _watch_a_job(settings, url: str, token: str) -> threading.Thread:
    """A thread that reads the events of a queued job; they are flowing when this returns."""
    from farrier.options import CompileOptions
    from farrier_farm.farm import Farm

    farm = Farm.open(settings)
    job = farm.jobs.submit(farm.blobs.put(b"model"), CompileOptions(target=TARGET))
    farm.close()
    flowing = threading.Event()

    def read() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.stream("GET", f"{url}/v1/jobs/{job.id}/events", headers=headers) as stream:
            for _ in stream.iter_lines():
                flowing.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert flowing.wait(10)
    return thread
