"""`farrier-device` as its operator meets it: options, signals, exit codes, and what it says."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time

import pytest
from small_broker import TLS, SmallBroker

from farrier_device.measurement import CodeObject, MeasureRequest, Status, TimingPolicy
from farrier_device.protocol import device_pb2
from tests.waiting import wait_until

QUICK = TimingPolicy(min_repeats=3, min_time_s=0.001, timeout_s=20.0)


@pytest.fixture
def launch(tmp_path):
    """Start `farrier-device` with an address and options."""
    token_file = tmp_path / "token"
    token_file.write_text("right token\n")
    processes = []

    def start(address: str, *options: str, token=token_file) -> subprocess.Popen:
        command = [sys.executable, "-W", "error", "-m", "farrier_device"]
        command += ["--broker", address, "--token-file", str(token), "--name", "board"]
        command += ["--state", str(tmp_path / "state"), *options]
        environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen, timeout_s: float = 90.0) -> tuple[int, str]:
    _, said = process.communicate(timeout=timeout_s)
    assert "Traceback" not in said
    return process.returncode, said


@pytest.fixture
def task(broker, library, doubling):
    def make(*symbols: str, policy: TimingPolicy = QUICK) -> MeasureRequest:
        for data in (doubling.x, doubling.y):
            broker.offer(data)
        candidates = tuple(map(doubling.candidate, symbols))
        return MeasureRequest((CodeObject(broker.offer(library)),), candidates, policy)

    return make


def is_held(broker, lease: str) -> bool:
    return any(lease in beat.leases for beat in broker.heartbeats)


class TestSignals:
    def test_sigterm_ends_the_batch_and_reports_it(self, broker, launch, task):
        process = launch(broker.address)
        policy = dataclasses.replace(QUICK, min_repeats=4)
        broker.submit("one", task("slow", policy=policy))
        wait_until(lambda: is_held(broker, "one"))
        process.send_signal(signal.SIGTERM)
        broker.submit("two", task("right"))
        code, said = ended(process)
        assert code == 0, said
        assert broker.reports["one", 1].results[0].status is Status.OK
        assert ("two", 1) not in broker.reports
        assert any(
            beat.state == device_pb2.DEVICE_STATE_DRAINING and "one" in beat.leases
            for beat in broker.heartbeats
        )

    def test_sigterm_ends_an_idle_agent(self, broker, launch):
        process = launch(broker.address)
        wait_until(lambda: broker.heartbeats)
        process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        assert ended(process)[0] == 0
        assert time.monotonic() - begin < 3

    def test_second_sigterm_ends_it_at_once(self, broker, launch, task):
        process = launch(broker.address)
        broker.submit("one", task("hang"))
        wait_until(lambda: is_held(broker, "one"))
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert ended(process, 2)[0] == 128 + signal.SIGTERM

    def test_killed_agent_delivers_in_its_next_life(self, broker, launch, task, tmp_path):
        from small_broker import unavailable

        def unavailable_to_the_first(context):
            if len(broker.registered) == 1:
                unavailable(context)

        broker.faults["Report"] += [unavailable_to_the_first] * 1000
        process = launch(broker.address)
        broker.submit("one", task("right"))
        wait_until(lambda: list((tmp_path / "state" / "outbox").glob("*.json")))
        process.kill()
        process.wait()
        launch(broker.address)
        assert broker.result("one").results[0].status is Status.OK
        assert len(broker.registered) == 2


class TestRefusals:
    def test_wrong_token(self, broker, launch, tmp_path):
        (tmp_path / "wrong").write_text("wrong")
        code, said = ended(launch(broker.address, token=tmp_path / "wrong"))
        assert code == 11
        assert "does not accept the token" in said

    def test_no_token_file(self, launch, tmp_path):
        code, said = ended(launch("localhost:1", token=tmp_path / "none"))
        assert code == 2
        assert "No such file" in said

    def test_plaintext_to_another_machine(self, launch):
        code, said = ended(launch("farm.example:50051"))
        assert code == 2
        assert "--tls-ca" in said

    def test_sandbox_that_is_not_here(self, broker, launch):
        code, said = ended(launch(broker.address, "--require-sandbox", "hypervisor"))
        assert code == 1
        assert "hypervisor missing" in said
        assert broker.registered == []

    def test_state_of_another_agent(self, broker, launch):
        launch(broker.address)
        wait_until(lambda: broker.heartbeats)
        code, said = ended(launch(broker.address))
        assert code == 2
        assert "in use by another agent" in said

    def test_state_that_is_no_directory(self, broker, launch, tmp_path):
        (tmp_path / "state").write_text("")
        code, said = ended(launch(broker.address))
        assert code == 2
        assert "state" in said


def test_dead_broker_is_waited_for(launch, broker, task):
    broker.stop()
    process = launch(broker.address)
    line = process.stderr.readline()
    assert "cannot be reached" in line
    broker.start()
    broker.submit("one", task("right"))
    assert broker.result("one").results[0].status is Status.OK
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 0
    assert said.count("cannot be reached") == 0


def test_dead_broker_does_not_hold_up_the_end(launch, broker):
    broker.stop()
    process = launch(broker.address)
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert ended(process, 5)[0] == 0


def test_tls(launch):
    broker = SmallBroker(tls=True)
    broker.start()
    try:
        launch(broker.address, "--tls-ca", str(TLS / "certificate.pem"))
        wait_until(lambda: broker.heartbeats)
    finally:
        broker.stop()


def test_an_adapter_that_is_not_there_is_named(launch):
    code, said = ended(launch("127.0.0.1:1", "--adapter", "Radeon Pro 5000"))
    assert code == 2
    assert "Radeon Pro 5000" in said or "no adapter" in said or "farrier[webgpu]" in said
