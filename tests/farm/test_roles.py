"""A role as a process: its last words, its restarts, its end."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from farrier.errors import ServiceError
from farrier_farm import roles
from farrier_farm.roles import Role, stop_together


def _role(tmp_path: Path, program: str) -> Role:
    role = Role("serve", [sys.executable, "-c", program], tmp_path, dict(os.environ))
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
    assert silent.last_words() == "it said nothing"


def test_a_role_that_ends_again_and_again_is_given_up(tmp_path):
    role = _role(tmp_path, "raise SystemExit('error: no luck')")
    for _ in range(roles.RESTARTS):
        assert role.wait(20)
        role.start_again()
    assert role.wait(20)
    with pytest.raises(ServiceError, match=r"ended 6 times in a row: no luck"):
        role.start_again()


def test_a_role_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(roles, "STOP_S", 0.5)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(60)"
    role = _role(tmp_path, f"import sys; sys.stdout.reconfigure(line_buffering=True); {deaf}")
    while "deaf" not in role.last_words():
        time.sleep(0.02)
    stop_together([role], lambda: False)
    assert role.code == -9


def test_a_role_that_was_stopped_is_told_of_once_and_can_be_asked_to_end(tmp_path):
    role = _role(tmp_path, "import time; time.sleep(600)")
    assert role.stopped_by() is None
    for _ in range(2):
        role.signal(signal.SIGSTOP)
        while (number := role.stopped_by()) is None:
            time.sleep(0.01)
        assert number is signal.SIGSTOP
        assert role.stopped_by() is None
        assert not role.ended
        role.signal(signal.SIGCONT)
    role.signal(signal.SIGSTOP)
    while role.stopped_by() is None:
        time.sleep(0.01)
    stop_together([role], lambda: False)
    assert role.code == -signal.SIGTERM
    assert role.stopped_by() is None


def test_a_long_log_is_set_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(roles, "LOG_BYTES", 10)
    (tmp_path / "serve.log").write_text("x" * 20)
    role = _role(tmp_path, "print('new')")
    assert role.wait(20)
    assert (tmp_path / "serve.log").read_text() == "new\n"
    assert (tmp_path / "serve.log.1").read_text() == "x" * 20
