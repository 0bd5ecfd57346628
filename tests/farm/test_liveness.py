"""Who hangs, and who only had to wait: processes whose signs of life are of any age."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farrier.errors import ServiceError
from farrier_device.alive import SignOfLife, path_of
from farrier_farm import liveness
from farrier_farm.liveness import Liveness
from farrier_farm.roles import Role

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


def _names(found: list[tuple[Role, float]]) -> list[str]:
    assert all(seconds > 0 for _, seconds in found)
    return [role.name for role, _ in found]


def _hung_at_last(looker: Liveness, roles: list[Role]) -> list[str]:
    deadline = time.monotonic() + 60
    while not (found := looker.hung(roles)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return _names(found)


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
    assert looker.hung([role]) == []  # it has not had the time to go on
    assert _hung_at_last(looker, [role]) == ["worker"]


def test_nobody_is_judged_for_time_in_which_nobody_looked(start) -> None:
    role = start("worker", LIMIT_S)
    looker = Liveness(0.6, lambda: True)
    time.sleep(0.3)  # the machine stands still
    assert looker.hung([role]) == []
    assert looker.hung([role]) == []
    assert _hung_at_last(looker, [role]) == ["worker"]


def test_who_waits_for_a_server_that_hangs_is_not_to_blame(start, tmp_path) -> None:
    broker, device = start("broker", LIMIT_S + 1), start("device", LIMIT_S + 1, needs="broker")
    looker = Liveness(LIMIT_S, lambda: True)
    assert _names(looker.hung([broker, device])) == ["broker"]
    _sign(broker, tmp_path / "alive", 0.0)
    assert looker.hung([broker, device]) == []
    assert _names(Liveness(LIMIT_S, lambda: True).hung([broker, device])) == ["device"]


def test_a_probe_tells_who_hangs_who_lives_and_who_is_not_there(start, tmp_path) -> None:
    signs = tmp_path / "alive"
    with pytest.raises(ServiceError, match="no worker gives signs"):
        liveness.check("worker", signs, LIMIT_S)
    role, gone = start("worker", 1.0), start("worker", 1.0)
    gone.signal(signal.SIGKILL)
    gone.wait(20)
    assert liveness.check("worker", signs, LIMIT_S) == [role.pid]
    assert len(list(signs.iterdir())) == 1
    _sign(role, signs, LIMIT_S + 1)
    with pytest.raises(ServiceError, match=f"process {role.pid}"):
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
