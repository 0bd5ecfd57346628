"""Tests of roles that hang, and of roles that only had to wait: their signs of life have any
age."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farrier.errors import ServiceError
from farrier_device.alive import SignOfLife, path_of
from farrier_farm.roles import liveness, process_state
from farrier_farm.roles.liveness import Liveness
from farrier_farm.roles.process_state import Glimpse
from farrier_farm.roles.supervisor import Role
from tests.waiting import wait_until

LIMIT_S = 60.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Role]]:
    """`start(name, ago, needs="")`: a role whose last sign of life is `ago` seconds old."""
    started: list[Role] = []

    def begin(name: str, ago: float, needs: str = "") -> Role:
        signs = tmp_path / "alive"
        command = ["sleep", "600"]
        role = Role(name, command, tmp_path, dict(os.environ), signs=signs, needs=needs)
        role.start()
        started.append(role)
        _sign(role, signs, ago)
        return role

    yield begin
    for role in started:
        role.signal(signal.SIGKILL)
        role.wait(20)


def _sign(role: Role, signs: Path, ago: float) -> None:
    signs.mkdir(exist_ok=True)
    path = path_of(signs, role.name, role.pid or 0)
    path.touch()
    then = time.monotonic() - ago
    os.utime(path, (then, then))


def _names(hung: list[tuple[Role, str]]) -> list[str]:
    assert all("no sign of life" in why or "a signal stopped it" in why for _, why in hung)
    return [role.name for role, _ in hung]


def _hung_at_last(looker: Liveness, roles: list[Role]) -> list[str]:
    return _names(wait_until(lambda: looker.hung(roles)))


def test_a_role_that_is_silent_hangs_and_its_successor_may_start(start) -> None:
    silent, well = start("worker", LIMIT_S + 1), start("serve", 1.0)
    looker = Liveness(LIMIT_S, lambda: True)
    assert _names(looker.hung([silent, well])) == ["worker"]
    before = silent.pid
    silent.replace()
    assert silent.look_after() == ""
    assert silent.pid != before
    assert looker.hung([silent, well]) == []


def test_nobody_is_judged_for_time_in_which_redis_stood_still(start) -> None:
    role = start("worker", LIMIT_S)
    redis = [False]
    looker = Liveness(0.6, lambda: redis[0])
    for _ in range(10):
        assert looker.hung([role]) == []
    redis[0] = True
    assert looker.hung([role]) == []  # It has not had the time to continue.
    assert _hung_at_last(looker, [role]) == ["worker"]


def test_nobody_is_judged_for_time_in_which_nobody_looked(start) -> None:
    role = start("worker", LIMIT_S)
    looker = Liveness(0.6, lambda: True)
    time.sleep(0.3)  # The machine stands still meanwhile.
    assert looker.hung([role]) == []
    assert looker.hung([role]) == []
    assert _hung_at_last(looker, [role]) == ["worker"]


def test_a_role_that_is_stopped_hangs_whatever_its_last_sign_and_whatever_redis_does(
    start, monkeypatch
) -> None:
    monkeypatch.setattr(liveness, "STOPPED_S", 0.2)
    role, well = start("serve", 0.0), start("worker", 0.0)
    looker = Liveness(LIMIT_S, lambda: False)
    assert looker.hung([role, well]) == []
    role.signal(signal.SIGSTOP)
    assert _hung_at_last(looker, [role, well]) == ["serve"]
    role.signal(signal.SIGCONT)
    wait_until(lambda: not process_state.is_stopped(role.pid))
    assert looker.hung([role, well]) == []


def test_nobody_is_judged_for_time_in_which_others_had_the_processors(start, monkeypatch) -> None:
    busy = [True]
    waited = [0.0]

    def glimpse(_pid: int) -> Glimpse:
        if busy[0]:
            waited[0] += 1000.0
        return Glimpse(time.monotonic(), False, {1: waited[0]}, 0.0)

    monkeypatch.setattr(process_state, "glimpse", glimpse)
    role = start("worker", 0.0)
    looker = Liveness(0.6, lambda: True)
    begin = time.monotonic()
    while time.monotonic() - begin < 2 * 0.6:
        assert looker.hung([role]) == []
        time.sleep(0.01)
    busy[0] = False
    assert _hung_at_last(looker, [role]) == ["worker"]


def test_a_role_that_waits_for_ever_hangs_at_last(start, monkeypatch) -> None:
    """In a call of the kernel that does not return, for one."""
    monkeypatch.setattr(
        process_state, "glimpse", lambda _pid: Glimpse(time.monotonic(), True, {}, 0.0)
    )
    role = start("worker", 0.0)
    begin = time.monotonic()
    assert _hung_at_last(Liveness(0.1, lambda: True), [role]) == ["worker"]
    assert time.monotonic() - begin > 0.9


def test_the_kernel_tells_who_waits_for_a_processor() -> None:
    """Two processes that compute share one."""
    cpu = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"
    pair = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
    try:
        before = process_state.glimpse(pair[0].pid)

        def kept_waiting() -> Glimpse | None:
            now = process_state.glimpse(pair[0].pid)
            return now if now.kept_waiting_s(before) >= 0.05 else None

        now = wait_until(kept_waiting)
        assert now is not None
        assert now.kept_waiting_s(before) <= now.at - before.at
    finally:
        for process in pair:
            process.kill()
            process.wait()
    assert process_state.glimpse(pair[0].pid).waited_s == {}
    assert not process_state.is_stopped(pair[0].pid)


def test_who_waits_for_a_server_that_hangs_is_not_to_blame(start, tmp_path) -> None:
    broker, device = start("broker", LIMIT_S + 1), start("device", LIMIT_S + 1, needs="broker")
    looker = Liveness(LIMIT_S, lambda: True)
    assert _names(looker.hung([broker, device])) == ["broker"]
    _sign(broker, tmp_path / "alive", 0.0)
    assert looker.hung([broker, device]) == []
    assert _names(Liveness(LIMIT_S, lambda: True).hung([broker, device])) == ["device"]


def test_a_probe_tells_who_hangs_who_lives_and_who_is_not_there(start, tmp_path) -> None:
    signs = tmp_path / "alive"
    with pytest.raises(ServiceError, match="no worker writes signs"):
        liveness.check("worker", signs, LIMIT_S)
    role, gone = start("worker", 1.0), start("worker", 1.0)
    gone.signal(signal.SIGKILL)
    gone.wait(20)
    assert liveness.check("worker", signs, LIMIT_S) == [role.pid]
    assert len(list(signs.iterdir())) == 1
    _sign(role, signs, LIMIT_S + 1)
    with pytest.raises(ServiceError, match=f"process {role.pid}. has given no sign"):
        liveness.check("worker", signs, LIMIT_S)
    _sign(role, signs, 0.0)
    role.signal(signal.SIGSTOP)
    wait_until(lambda: process_state.is_stopped(role.pid))
    with pytest.raises(ServiceError, match=f"process {role.pid}. was stopped"):
        liveness.check("worker", signs, LIMIT_S)


def test_signs_of_long_ago_are_forgotten_and_one_that_is_renewed_comes_back(tmp_path) -> None:
    sign = SignOfLife(tmp_path, "worker")
    [path] = tmp_path.iterdir()
    path.unlink()
    time.sleep(0.6)
    sign.renew()
    assert path.exists()
    sign.end()
    assert list(tmp_path.iterdir()) == []
