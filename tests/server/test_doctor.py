"""Tests of `farrier doctor` on a real farm: its findings when all is well, and for each failure."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys

import pytest

from farrier.records.outcome import Outcome
from farrier.sdk.doctor import of_service
from farrier_server.doctor import of_farm
from tests.waiting import wait_until


@pytest.fixture
def examine(farm_settings, start_broker, start_service, monkeypatch):
    """A function that returns the doctor's findings by subject, with the broker and the service
    that it examines."""
    settings = dataclasses.replace(farm_settings, device_expiry_s=30.0)
    service, broker = start_service(settings), start_broker(settings)
    environment = settings.to_environment() | {"FARRIER_BROKER_PORT": broker.address.split(":")[1]}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def run(*names: str, wait_s: float = 60.0):
        with service.client(patience_s=0) as client:
            findings = [*of_service(client, names), *of_farm(names, wait_s)]
        return {finding.what: finding for finding in findings}

    run.service, run.broker = service, broker
    return run


def test_it_measures_on_each_device(examine, tmp_path):
    token = examine.service.settings.home / "device.token"
    command = [sys.executable, "-m", "farrier_device", "--no-pin", "--broker"]
    command += [examine.broker.address, "--token-file", token, "--name", "rack1"]
    agent = subprocess.Popen([*command, "--state", tmp_path], stderr=subprocess.DEVNULL)
    try:
        wait_until(examine.service.farm.devices.list)
        findings = examine()
        assert all(finding.ok for finding in findings.values()), findings
        assert list(findings) == [
            *("api", "ready", "token", "device rack1"),
            *("redis", "blob store", "broker", "measure on rack1"),
        ]
        assert "µs a call" in findings["measure on rack1"].detail
        assert "durable write" in findings["redis"].detail
        assert set(examine("nobody")) >= {"device nobody"}
        assert not examine("nobody")["device nobody"].ok
        device = "farrier:device:rack1"
        examine.service.farm.client.command("HSET", device, "unfit", "its token is another")
        findings = examine()["device rack1"]
        assert (findings.ok, findings.detail) == (False, "gets no work: its token is another")
        examine.service.farm.devices.release("rack1")
        agent.send_signal(signal.SIGSTOP)  # It sends no heartbeat, but is not gone yet.
        findings = examine(wait_s=1.0)
        assert [name for name, finding_of in findings.items() if not finding_of.ok] == [
            "measure on rack1"
        ]
        assert "no result in" in findings["measure on rack1"].detail
    finally:
        agent.kill()
        agent.wait()


def test_each_thing_that_is_wrong_is_named_with_the_way_out(examine, monkeypatch):
    service = examine.service
    findings_now = examine()
    assert not findings_now["devices"].ok
    assert "farrier device" in findings_now["devices"].hint
    service.farm.client.command("CONFIG", "SET", "appendfsync", "everysec")
    monkeypatch.setenv("FARRIER_DEVICE_TOKEN", "another")
    findings_now = examine()
    assert "appendfsync is everysec" in findings_now["redis durability"].detail
    assert "unauthenticated" in findings_now["broker"].detail
    examine.broker.stop()
    findings_now = examine()
    assert not findings_now["broker"].ok
    assert "farrier broker" in findings_now["broker"].hint
    wrong = dataclasses.replace(service, token="wrong")
    with wrong.client(patience_s=0) as client:
        findings = {finding.what: finding for finding in of_service(client, ())}
    assert [name for name, finding_of in findings.items() if not finding_of.ok] == ["token"]


def test_what_the_trainer_has_made_is_told_and_read(examine):
    farm = examine.service.farm
    assert "trainer" not in examine()
    worse, better = Outcome(False, "it is not better"), Outcome(True, "it is better")
    assert farm.cost_models.decide(0, 9, worse) == 0
    finding = examine()["trainer"]
    assert finding.ok
    assert "it is not better; jobs begin with the built-in cost model" in finding.detail
    assert farm.cost_models.decide(1, 9, better, b"a model") == 1
    finding = examine()["trainer"]
    assert finding.ok
    assert finding.detail.endswith("it is better; jobs begin with version 1 of the cost model")
    farm.blobs.path(farm.cost_models.in_use().blob).write_bytes(b"damaged")
    finding = examine()["trainer"]
    assert not finding.ok
    assert (
        "version 1 of the cost model is in use, but jobs begin with the built-in one"
        in finding.detail
    )
    assert "rollback" in finding.hint


def test_a_stopped_farm_is_told_of(installation, monkeypatch):
    for name, value in installation.settings.to_environment().items():
        monkeypatch.setenv(name, value)
    installation.kill_redis()
    (finding,) = of_farm((), 1.0)
    assert (finding.what, finding.ok) == ("redis", False)
    installation.start_redis()


def test_elsewhere_it_asks_the_server_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("FARRIER_HOME", str(tmp_path))
    monkeypatch.delenv("REDIS_URL", raising=False)
    assert list(of_farm((), 1.0)) == []


def test_the_command_says_so_and_exits_with_1(tmp_path):
    environment = {
        "FARRIER_HOME": str(tmp_path),
        "FARRIER_SERVER": "http://127.0.0.1:9",
        "PATH": "",
    }
    command = [sys.executable, "-m", "farrier.cli", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FAIL  api: no server answers at http://127.0.0.1:9" in done.stdout
    assert "hint: start one with `farrier up`" in done.stdout
    assert "1 of 1 checks failed" in done.stdout
