"""`farrier up` comes, goes and comes back: nothing is lost, nothing is left running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import farrier
from tests.waiting import wait_until

SHAPE = (1, 3, 13, 17)


@pytest.mark.long
def test_everything_is_there_after_a_stop_and_after_a_kill(make_up, model, tmp_path):
    up = make_up().start()
    with up.client() as client:
        job = client.wait(client.submit(model, shapes={"x": SHAPE}, trials=8, name="first").id)
    token = up.token
    code, said = up.end(signal.SIGINT)
    assert (code, said.strip().splitlines()[-1]) == (0, "stopping")
    assert up.pids("") == []

    up.start()
    assert up.token == token
    with up.client() as client:
        assert client.job(job.id) == job
        farrier.load(client.fetch(job.id, tmp_path / "one.farrier"))
        again = client.submit(model, shapes={"x": SHAPE}, trials=8, name="second")
        report = client.wait(again.id).report
    assert up.end(signal.SIGKILL)[0] == -signal.SIGKILL

    up.start()  # Its roles died with it; Valkey lived on and is adopted.
    with up.client() as client:
        assert [job.name for job in client.jobs()] == ["second", "first"]
        assert client.job(again.id).report == report
        client.fetch(again.id, tmp_path / "two.farrier")
    assert up.end(signal.SIGTERM)[0] == 0
    assert up.pids("") == []


def test_a_second_one_in_the_same_home_is_told_so(up):
    done = up.command("up")
    assert done.returncode == 15
    assert f"farrier up is already running in {up.home} (process {up.process.pid})" in done.stderr


def test_a_role_that_was_stopped_is_told_of(up):
    (pid,) = up.pids("farrier.cli broker")
    os.kill(pid, signal.SIGSTOP)
    try:
        said = next(line for line in up.process.stdout if line.startswith("broker"))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "was stopped by SIGSTOP" in said
    assert f"kill -CONT {pid}" in said


def _stop(up, *roles: str) -> dict[str, int]:
    """Stop these roles; their process ids."""
    pids = {}
    for role in roles:
        (pids[role],) = up.pids(_command(role))
        os.kill(pids[role], signal.SIGSTOP)
    return pids


def _command(role: str) -> str:
    return "farrier_device --broker" if role == "device" else f"farrier.cli {role}"


@pytest.mark.long
def test_roles_that_are_stopped_are_replaced(up):
    roles = ["serve", "broker", "worker", "trainer", "device"]
    stopped = _stop(up, *roles)
    waiting = {f"{role} (process {pid}) hangs: a signal stopped" for role, pid in stopped.items()}
    while waiting:
        said = up.process.stdout.readline()
        waiting = {words for words in waiting if not said.startswith(words)}
    for role, pid in stopped.items():
        wait_until(lambda role=role, pid=pid: up.pids(_command(role)) not in ([], [pid]))
        state = ["--state", up.home / "device"] if role == "device" else []
        wait_until(lambda role=role, state=state: up.command("probe", role, *state).returncode == 0)
    wait_until(lambda: " idle " in up.command("devices").stdout)


@pytest.mark.long
def test_a_builder_that_hangs_is_replaced(make_up):
    up = make_up(FARRIER_BUILDERS="1").start()
    stopped = _stop(up, "builder")["builder"]
    words = f"builder-1 (process {stopped}) hangs: a signal stopped it"
    assert next(line for line in up.process.stdout if line.startswith(words))
    wait_until(lambda: up.pids(_command("builder")) not in ([], [stopped]))
    wait_until(lambda: up.command("probe", "builder").returncode == 0)
    assert up.end()[0] == 0
    assert up.pids("") == []


def test_roles_are_probed(up):
    for role in ("worker", "trainer"):
        assert up.command("probe", role).stdout.startswith(f"{role} is alive: process")
    state = up.home / "device"
    assert up.command("probe", "device", "--state", state).returncode == 0
    none = up.command("probe", "device", "--state", up.home)
    assert (none.returncode, "no device writes signs of life" in none.stderr) == (10, True)


@pytest.mark.parametrize("option", ["--port", "--broker-port"])
def test_a_taken_port_is_named(make_up, option):
    up = make_up()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = up.command("up", "--port", "0", "--broker-port", "0", option, port)
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert option in done.stderr
    assert up.pids("") == []


@pytest.mark.parametrize("after_s", [0.2, 0.6, 1.0])
def test_ctrl_c_while_it_starts(make_up, after_s):
    up = make_up()
    up.launch("--port", "0", "--broker-port", "0")
    time.sleep(after_s)
    code, said = up.end(signal.SIGINT)
    # The last is possible if Python itself was still starting.
    assert code in (0, 130, -signal.SIGINT)
    assert "error" not in said
    assert up.pids("") == []


@pytest.mark.long
def test_with_tls(make_up, model, tmp_path, tls):
    certificate, key = tls
    up = make_up(
        FARRIER_TLS_CERT=str(certificate),
        FARRIER_TLS_KEY=str(key),
        FARRIER_API_HOST="0.0.0.0",
        FARRIER_BROKER_HOST="0.0.0.0",
        FARRIER_DEVICE_TOKEN="told by the environment",
    ).start()
    assert up.url.startswith("https://localhost:")
    with up.client() as client:
        client.wait(client.submit(model, shapes={"x": SHAPE}, trials=4).id)
    assert up.end()[0] == 0


@pytest.mark.long
def test_each_role_starts_by_itself(make_up, model, tmp_path):
    """As on machines of their own, but for the home."""
    up = make_up()
    ports = {}
    for name in ("FARRIER_API_PORT", "FARRIER_BROKER_PORT"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports[name] = str(free.getsockname()[1])
    up.url = f"http://127.0.0.1:{ports['FARRIER_API_PORT']}"
    roles = []

    def start(*words: str) -> None:
        command = [sys.executable, "-m", "farrier.cli", *words]
        with (tmp_path / f"{words[0]}.log").open("w") as log:
            roles.append(
                subprocess.Popen(command, env={**up.environment, **ports}, stdout=log, stderr=log)
            )

    try:
        start("serve")
        wait_until(lambda: up.command("jobs").returncode == 0)
        start("broker")
        wait_until(lambda: (up.home / "device.token").exists())
        start("worker")
        broker = f"127.0.0.1:{ports['FARRIER_BROKER_PORT']}"
        token = str(up.home / "device.token")
        state = str(tmp_path / "device")
        start("device", "--broker", broker, "--token-file", token, "--state", state, "--name", "x")
        wait_until(lambda: " idle " in up.command("devices").stdout)
        assert up.command("devices", "trust", "x").returncode == 0
        done = up.command("submit", model, "--shape", "x=1,3,13,17", "--trials", "4", "--watch")
        assert done.returncode == 0, done.stderr
        assert "verified on x:" in done.stderr
    finally:
        for role in reversed(roles):
            role.send_signal(signal.SIGINT)
            assert role.wait(30) == 0
    assert up.pids("") == []


def test_a_redis_that_does_not_answer_is_named(make_up):
    up = make_up(REDIS_URL="redis://127.0.0.1:1")
    done = up.command("up", "--port", "0", "--broker-port", "0")
    assert (done.returncode, "Redis at 127.0.0.1:1 does not answer" in done.stderr) == (10, True)
    assert up.pids("") == []


def test_a_role_that_does_not_start_is_quoted(make_up):
    up = make_up(FARRIER_API_HOST="0.0.0.0")
    done = up.command("up", "--port", "0", "--broker-port", "0")
    assert done.returncode == 10
    assert "serve ended at its start: refusing to listen on 0.0.0.0 without TLS" in done.stderr
    assert up.pids("") == []


def test_a_full_disk_is_named(make_up):
    up = make_up(FARRIER_MIN_FREE_BYTES=str(1 << 60))
    done = up.command("up", "--port", "0", "--broker-port", "0")
    assert (done.returncode, "bytes are free in" in done.stderr) == (9, True)
    assert up.pids("") == []
