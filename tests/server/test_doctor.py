"""`farrier doctor` on a real farm: what it says where all is well, and of what is not."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time

import pytest

from farrier.records.outcome import Outcome
from farrier.sdk.doctor import of_service
from farrier_server.doctor import of_farm


@pytest.fixture
def examine(farm_settings, start_broker, start_service, monkeypatch):
    """What the doctor finds, by what it looked at; and the broker and service that it looks at."""
    settings = dataclasses.replace(farm_settings, device_expiry_s=30.0)
    service, broker = start_service(settings), start_broker(settings)
    environment = settings.to_environment() | {"FARRIER_BROKER_PORT": broker.address.split(":")[1]}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def run(*names: str, wait_s: float = 60.0):
        with service.client(patience_s=0) as client:
            found = [*of_service(client, names), *of_farm(names, wait_s)]
        return {finding.what: finding for finding in found}

    run.service, run.broker = service, broker
    return run


def test_it_measures_on_each_device(examine, tmp_path):
    token = examine.service.settings.home / "device.token"
    command = [sys.executable, "-m", "farrier_device", "--no-pin", "--broker"]
    command += [examine.broker.address, "--token-file", token, "--name", "rack1"]
    agent = subprocess.Popen([*command, "--state", tmp_path], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not examine.service.farm.devices.list():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        found = examine()
        assert all(finding.ok for finding in found.values()), found
        assert list(found) == [
            *("api", "ready", "token", "device rack1"),
            *("redis", "blob store", "broker", "measure on rack1"),
        ]
        assert "µs a call" in found["measure on rack1"].detail
        assert "durable write" in found["redis"].detail
        assert set(examine("nobody")) >= {"device nobody"}
        assert not examine("nobody")["device nobody"].ok
        device = "farrier:device:rack1"
        examine.service.farm.client.command("HSET", device, "unfit", "its token is another")
        found = examine()["device rack1"]
        assert (found.ok, found.detail) == (False, "gets no work: its token is another")
        examine.service.farm.devices.release("rack1")
        agent.send_signal(signal.SIGSTOP)  # it beats no more, and is not gone yet
        found = examine(wait_s=1.0)
        assert [name for name, one in found.items() if not one.ok] == ["measure on rack1"]
        assert "nothing came back" in found["measure on rack1"].detail
    finally:
        agent.kill()
        agent.wait()


def test_each_thing_that_is_wrong_is_named_with_the_way_out(examine, monkeypatch):
    service = examine.service
    found = examine()
    assert not found["devices"].ok
    assert "farrier device" in found["devices"].hint
    service.farm.client.command("CONFIG", "SET", "appendfsync", "everysec")
    monkeypatch.setenv("FARRIER_DEVICE_TOKEN", "another")
    found = examine()
    assert "appendfsync is everysec" in found["redis durability"].detail
    assert "unauthenticated" in found["broker"].detail
    examine.broker.stop()
    found = examine()
    assert not found["broker"].ok
    assert "farrier broker" in found["broker"].hint
    wrong = dataclasses.replace(service, token="wrong")
    with wrong.client(patience_s=0) as client:
        findings = {finding.what: finding for finding in of_service(client, ())}
    assert [name for name, one in findings.items() if not one.ok] == ["token"]


def test_what_the_trainer_has_made_is_told_and_read(examine):
    farm = examine.service.farm
    assert "trainer" not in examine()
    worse, better = Outcome(False, "it is not better"), Outcome(True, "it is better")
    assert farm.cost_models.decide(0, 9, worse) == 0
    found = examine()["trainer"]
    assert found.ok
    assert "it is not better; jobs begin with the cost model that ships" in found.detail
    assert farm.cost_models.decide(1, 9, better, b"a model") == 1
    found = examine()["trainer"]
    assert found.ok
    assert found.detail.endswith("it is better; jobs begin with version 1 of the cost model")
    farm.blobs.path(farm.cost_models.in_use().blob).write_bytes(b"damaged")
    found = examine()["trainer"]
    assert not found.ok
    assert "version 1 of the cost model is in use, and jobs begin with the one" in found.detail
    assert "rollback" in found.hint


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
    assert "hint: `farrier up` starts one" in done.stdout
    assert "1 of 1 checks failed" in done.stdout
