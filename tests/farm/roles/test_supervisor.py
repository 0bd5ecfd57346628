"""A role as a process: its last words, its restarts, its end."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from farrier_device.alive import path_of
from farrier_farm.roles import supervisor
from farrier_farm.roles.supervisor import Role, stop_together
from tests.waiting import wait_until


def _role(tmp_path: Path, program: str) -> Role:
    command = [sys.executable, "-c", program]
    role = Role("serve", command, tmp_path, dict(os.environ), signs=tmp_path / "alive")
    role.start()
    return role


def test_the_last_words_are_the_error_of_this_life(tmp_path):
    (tmp_path / "serve.log").write_text("error: of long ago\n")
    role = _role(tmp_path, "print('begun\\nerror: port taken\\n  hint: another')")
    assert role.wait(20)
    assert role.ended
    assert role.last_words() == "port taken"
    silent = _role(tmp_path, "pass")
    assert silent.wait(20)
    assert silent.last_words() == "it wrote nothing to its log"


def test_a_role_that_ends_again_and_again_is_started_for_ever_and_told_of_twice(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.0, 0.1, 0.2))
    lives = tmp_path / "lives"
    role = _role(
        tmp_path, f"open({str(lives)!r}, 'a').write('x'); raise SystemExit('error: no luck')"
    )
    news = []
    while not lives.exists() or len(lives.read_text()) < 8:
        news.append(role.look_after())
        time.sleep(0.01)
    assert role.wait(20)
    first, second = filter(None, news)
    assert first == "serve ended with code 1: no luck"
    assert "again" in second
    assert str(role.log) in second


def test_a_role_whose_needs_are_away_is_started_at_once_when_they_are_back(tmp_path):
    role = _role(tmp_path, "import time; time.sleep(600)")
    role.signal(signal.SIGKILL)
    assert role.wait(20)
    news = [role.look_after(lambda: False) for _ in range(3)]
    assert [bool(words) for words in news] == [True, False, False]
    assert role.ended
    role.look_after(lambda: True)
    assert not role.ended
    role.signal(signal.SIGKILL)
    assert role.wait(20)


@pytest.mark.parametrize("comes_up", [True, False])
def test_a_role_that_had_come_up_is_not_waited_for_long(tmp_path, monkeypatch, comes_up):
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.0, 600.0))
    monkeypatch.setattr(supervisor, "UP_PAUSE_S", 0.1)
    lives = tmp_path / "lives"
    role = _role(tmp_path, f"open({str(lives)!r}, 'a').write('x'); import time; time.sleep(600)")
    for count in range(1, 4 if comes_up else 3):
        while not lives.exists() or len(lives.read_text()) < count:
            role.look_after()
            time.sleep(0.01)
        if comes_up:
            sign = path_of(tmp_path / "alive", "serve", role.pid)
            sign.parent.mkdir(exist_ok=True)
            sign.touch()
        role.signal(signal.SIGKILL)
        assert role.wait(20)
    role.look_after()
    time.sleep(0.2)
    role.look_after()
    assert role.ended is not comes_up
    role.signal(signal.SIGKILL)
    assert role.wait(20)


def test_a_role_that_stays_up_after_all_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.0,))
    monkeypatch.setattr(supervisor, "STEADY_S", 0.5)
    lives = tmp_path / "lives"
    program = f"""
import os, time
with open({str(lives)!r}, 'a') as lives:
    lives.write('x')
if os.path.getsize({str(lives)!r}) > 2:
    time.sleep(600)
"""
    monkeypatch.setattr(supervisor, "STEADY_S", 600.0)
    role = _role(tmp_path, program)
    news = []
    while not lives.exists() or len(lives.read_text()) < 3:
        news += filter(None, [role.look_after()])
        time.sleep(0.01)
    monkeypatch.setattr(supervisor, "STEADY_S", 0.1)
    while len(news) < 3:
        news += filter(None, [role.look_after()])
        time.sleep(0.01)
    assert news[2] == "serve is running again"
    role.signal(signal.SIGKILL)
    assert role.wait(20)


def test_a_program_that_is_gone_does_not_end_the_one_that_looks(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.0,))
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o700)
    role = Role("serve", [program], tmp_path, dict(os.environ), signs=tmp_path)
    role.start()
    assert role.wait(20)
    program.unlink()
    news = [role.look_after() for _ in range(5)]
    assert any("cannot be started" in line for line in news)
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o700)
    role.look_after()
    assert not role.ended
    role.signal(signal.SIGKILL)
    assert role.wait(20)


def test_a_role_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "STOP_S", 0.5)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(60)"
    role = _role(tmp_path, f"import sys; sys.stdout.reconfigure(line_buffering=True); {deaf}")
    wait_until(lambda: "deaf" in role.last_words())
    stop_together([role], lambda: False)
    assert role.code == -9


def test_a_role_that_was_stopped_is_told_of_once_and_can_be_asked_to_end(tmp_path):
    role = _role(tmp_path, "import time; time.sleep(600)")
    assert role.stopped_by() is None
    for _ in range(2):
        role.signal(signal.SIGSTOP)
        assert wait_until(role.stopped_by) is signal.SIGSTOP
        assert role.stopped_by() is None
        assert not role.ended
        role.signal(signal.SIGCONT)
    role.signal(signal.SIGSTOP)
    wait_until(role.stopped_by)
    stop_together([role], lambda: False)
    assert role.code == -signal.SIGTERM
    assert role.stopped_by() is None


def test_a_long_log_is_set_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "LOG_BYTES", 10)
    (tmp_path / "serve.log").write_text("x" * 20)
    role = _role(tmp_path, "print('new')")
    assert role.wait(20)
    assert (tmp_path / "serve.log").read_text() == "new\n"
    assert (tmp_path / "serve.log.1").read_text() == "x" * 20
