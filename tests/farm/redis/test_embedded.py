"""The embedded server: found again, adopted, stopped cleanly, and durable."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from farrier.errors import ServiceError, StorageError, UsageError
from farrier.options import CompileOptions
from farrier_farm.farm import Farm
from farrier_farm.redis import embedded
from farrier_farm.redis.connection import connect
from farrier_farm.redis.retry import PROBE
from farrier_farm.settings import Settings
from tests.here import TARGET

MODEL = "5e" * 32

STARTER = """
    import pathlib, sys, time
    from farrier_farm.redis import embedded
    from farrier_farm.settings import Settings
    valkey = embedded.start(Settings(home=pathlib.Path(sys.argv[1])))
    print(valkey.pid, valkey.owned, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = Settings(home=tmp_path_factory.mktemp("e") / "home", min_free_bytes=0)
    yield settings
    _stop_all(settings)


def _stop_all(settings: Settings) -> None:
    if embedded.socket_path(settings.home).exists():
        embedded.start(settings).stop()


def _starter(settings: Settings) -> tuple[subprocess.Popen[str], int]:
    """Another process that started the server, and the server's pid."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STARTER), settings.home],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pid, owned = process.stdout.readline().split()
    assert owned == "True"
    return process, int(pid)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _gone(pid: int) -> bool:
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_server_whose_starter_died_before_it_answered_is_adopted(settings: Settings) -> None:
    settings.home.mkdir()
    server = embedded._launch(settings.home, embedded.socket_path(settings.home))
    assert server is not None
    assert not embedded.socket_path(settings.home).exists()
    valkey = embedded.start(settings)
    assert valkey.owned
    assert valkey.pid == server.pid
    valkey.stop()
    assert server.wait(10) == 0


def test_a_server_that_lives_but_does_not_answer_is_not_started_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    valkey = embedded.start(settings)
    pid = valkey.pid
    with monkeypatch.context() as patch:  # A disk may take half a minute for a write.
        patch.setattr(embedded, "_accepts", lambda path: False)
        assert not valkey.revive()
    assert valkey.pid == pid
    os.kill(pid, signal.SIGKILL)
    assert _gone(pid)
    assert valkey.revive()
    valkey.stop()


def test_it_listens_on_a_private_socket_only(settings: Settings) -> None:
    valkey = embedded.start(settings)
    client = connect(valkey.url)
    words = client.command("CONFIG", "GET", "*")
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options["port"] == "0"
    assert options["appendonly"] == "yes"
    assert options["maxmemory-policy"] == "noeviction"
    assert embedded.socket_path(settings.home).stat().st_mode & 0o777 == 0o600
    assert settings.home.stat().st_mode & 0o777 == 0o700
    client.close()
    pid = valkey.pid
    valkey.stop()
    valkey.stop()
    assert _gone(pid)
    with pytest.raises(ServiceError):
        _ = valkey.pid


def test_a_second_start_finds_the_first_and_leaves_it_running(settings: Settings) -> None:
    process, pid = _starter(settings)
    second = embedded.start(settings)
    assert (second.pid, second.owned) == (pid, False)
    second.stop()
    assert second.pid == pid
    _end(process)


def test_a_server_whose_starter_died_is_adopted(settings: Settings) -> None:
    process, pid = _starter(settings)
    farm = Farm.open(settings)
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    _end(process)
    assert farm.jobs.get(job.id) == job  # it went on
    farm.close()
    adopted = embedded.start(settings)
    assert (adopted.pid, adopted.owned) == (pid, True)
    adopted.stop()
    assert _gone(pid)


def test_what_was_acknowledged_survives_kill_9(settings: Settings) -> None:
    first = embedded.start(settings)
    farm = Farm.open(settings)
    jobs = [
        farm.jobs.submit(MODEL, CompileOptions(target=TARGET), idempotency_key=str(n))
        for n in range(50)
    ]
    lease = farm.jobs.lease("w", 0)
    os.kill(first.pid, signal.SIGKILL)
    first.stop()  # Its lock is free again.
    second = embedded.start(settings)
    assert second.owned
    # The same client goes on: it connects anew and loads its scripts anew.
    assert [farm.jobs.get(job.id) for job in jobs[1:]] == jobs[1:]
    farm.jobs.renew(lease)
    farm.jobs.succeed(lease, MODEL, {})
    assert farm.jobs.lease("w", 0).item == jobs[1].id
    farm.close()
    second.stop()


def test_a_server_that_does_not_answer_is_stopped_too(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    valkey = embedded.start(settings)
    farm = Farm.open(settings)
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    pid = valkey.pid
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(embedded, "_STOP_S", 0.2)
    valkey.stop()
    assert _gone(pid)
    again = embedded.start(settings)
    assert again.owned
    assert farm.jobs.get(job.id) == job
    farm.close()
    again.stop()


def test_a_home_changes_between_valkey_and_redis(settings: Settings, monkeypatch) -> None:
    both = [embedded.server_program()]
    monkeypatch.setenv("PATH", "")
    both.append(embedded.server_program())
    if both[0] == both[1]:
        pytest.skip("no redis-server on the PATH")
    submitted = []
    for program in (both[1], both[0], both[1]):
        monkeypatch.setattr(embedded, "server_program", lambda program=program: program)
        valkey = embedded.start(settings)
        farm = Farm.open(settings)
        farm.client.command("BGREWRITEAOF")
        submitted.append(farm.jobs.submit(MODEL, CompileOptions(target=TARGET)))
        assert farm.jobs.list()[0] == submitted[::-1]
        farm.close()
        valkey.stop()


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(settings: Settings) -> None:
    valkey = embedded.start(settings)
    assert os.getsid(valkey.pid) != os.getsid(0)
    valkey.stop()


def test_homes_that_do_not_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="FARRIER_HOME"):
        embedded.start(Settings(home=tmp_path / ("x" * 100)))
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StorageError):
        embedded.start(Settings(home=file / "home"))


def test_a_damaged_append_only_file_is_reported(settings: Settings) -> None:
    valkey = embedded.start(settings)
    valkey.stop()
    [manifest] = settings.home.glob("valkey/appendonlydir/*.manifest")
    manifest.write_text("nonsense\n")
    with pytest.raises(ServiceError, match="does not start"):
        embedded.start(settings)
    assert not embedded.socket_path(settings.home).exists()


def test_opening_a_farm_that_does_not_run(settings: Settings) -> None:
    with pytest.raises(ServiceError, match="no farm is running"):
        Farm.open(settings)
    with pytest.raises(ServiceError, match="REDIS_URL"):
        Farm.open(Settings(home=settings.home, redis_url="http://nowhere"))
    with pytest.raises(ServiceError, match="does not answer"):
        connect("redis://127.0.0.1:1", PROBE)


def test_a_server_that_may_forget_is_warned_about(settings: Settings, caplog) -> None:
    valkey = embedded.start(settings)
    Farm.open(settings).close()
    assert caplog.messages == []
    client = connect(valkey.url)
    client.command("CONFIG", "SET", "appendfsync", "everysec")
    client.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    client.close()
    Farm.open(settings).close()
    assert len(caplog.messages) == 2
    assert "appendfsync is everysec, not always" in caplog.text
    assert "maxmemory-policy is allkeys-lru, not noeviction" in caplog.text
    valkey.stop()
