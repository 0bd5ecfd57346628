"""Children: forked one at a time, and gone with all that they have started."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from farrier_device import sandbox, wire
from farrier_device.processes import Handle, children_of, is_running
from farrier_device.runners.children import Children
from tests.rpc_device.children import measuring_processes, threads_of


@pytest.fixture
def own():
    with Children(sandbox.Limits.of_machine(), "") as plain:
        yield plain


@pytest.mark.parametrize(("module", "level"), [("daemons", "pidns"), ("daemons_unhoused", "none")])
def test_daemons_are_gone_with_their_child(strange, module, level):
    with strange(module) as own:
        for _ in range(2):
            child = own.child()
            assert child.level == level
            wire.ask_for_senders(child.sock)
            daemons = []
            for _ in range(2):
                daemons.append(wire.sender(child.sock, 10.0))
                assert wire.receive(child.sock) == {"here": True}
            assert all(map(is_running, daemons))
            assert child.pid not in daemons
            own.end()
            assert not any(map(is_running, [child.pid, *daemons]))
            assert not Path(child.folder).exists()


def test_daemons_in_a_namespace_are_gone_with_a_fork_server_that_is_killed(strange):
    own = strange("daemons")
    child = own.child()
    daemons = []
    for _ in range(2):
        daemons.append(wire.sender(child.sock, 10.0))
        wire.receive(child.sock)
    with Handle(own._server.greeter) as server:
        server.send(signal.SIGKILL)
        assert server.wait(10.0)
    assert not any(map(is_running, [child.pid, *daemons]))
    own.close()


def test_a_fork_server_has_one_thread_when_it_forks(own):
    own.child()
    own.end()
    pids = measuring_processes(os.getpid())
    assert own._server.greeter in pids
    assert {threads_of(pid) for pid in pids} == {1}


def test_what_a_fork_costs_is_said(own, capsys):
    own.child()
    own.end()
    pid, count = own._server.greeter, 20
    before, begin = processor_s(pid), time.perf_counter()
    for _ in range(count):
        own.child()
        own.end()
    wall, busy = time.perf_counter() - begin, processor_s(pid) - before
    with capsys.disabled():
        print(
            f" [a child: {1e3 * wall / count:.1f} ms, {1e3 * busy / count:.1f} ms of CPU]", end=""
        )
    assert children_of(pid) == []


def processor_s(pid: int) -> float:
    """Processor time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def test_an_ending_tells_how_a_child_ended_by_itself(own):
    child = own.child()
    child.sock.shutdown(socket.SHUT_RDWR)
    assert own.end(grace_s=10.0) == (0, "no output")
    own.child()
    assert own.end() == (None, "no output")
    assert own.end() is None


def test_threads_that_ask_at_once_have_one_child(own):
    pids = []
    threads = [threading.Thread(target=lambda: pids.append(own.child().pid)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(pids)) == 1


class TestFrames:
    @pytest.fixture
    def pair(self):
        near, far = socket.socketpair()
        with near, far:
            yield near, far

    def test_a_longer_frame_than_may_be_is_not_read(self, pair):
        near, far = pair
        far.sendall((101).to_bytes(4, "little") + b"{}")
        with pytest.raises(wire.TooLongError, match="101 bytes"):
            wire.receive(near, 100)
        assert near.recv(100) == b"{}"

    def test_a_frame_that_trickles_has_an_end(self, pair):
        near, far = pair
        far.sendall((1 << 20).to_bytes(4, "little"))
        stop = threading.Event()

        def trickle():
            while not stop.wait(0.02):
                far.send(b" ")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            with pytest.raises(TimeoutError):
                wire.receive(near, within_s=0.3)
        finally:
            stop.set()
            thread.join()

    def test_a_sender_is_told_by_the_kernel(self, pair):
        near, far = pair
        wire.ask_for_senders(near)
        wire.send(far, {})
        assert wire.sender(near, 1.0) == os.getpid()
        assert wire.receive(near) == {}
        far.close()
        with pytest.raises(wire.ClosedError):
            wire.sender(near, 1.0)
