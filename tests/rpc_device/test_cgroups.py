"""Control groups: where one may be made, its bounds, and the end of all that are in it.

The tree is pretended but for the last test, because controllers that are bound to the older
interface, as in some machines of CI, are in no group of this one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from farrier_device import cgroups, wire
from farrier_device.cgroups import Group
from farrier_device.processes import Handle, is_running

MIB = 1 << 20


class Tree:
    """A pretended tree, in which this process is in the group `own`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, own: str) -> None:
        self.root = folder / "tree"
        mounts, names = folder / "mountinfo", folder / "cgroup"
        mounts.write_text(
            f"24 1 0:22 / /proc rw - proc proc rw\n25 1 0:23 / {self.root} rw - cgroup2 c rw\n"
        )
        names.write_text(f"4:memory:/elsewhere\n0::{own}\n")
        patch.setattr(cgroups, "_MOUNTS", mounts)
        patch.setattr(cgroups, "_OWN", names)
        patch.setattr(cgroups, "_mark", lambda group, name: b"1" if group in self.marked else b"")
        patch.setattr(os, "geteuid", lambda: 0)
        self.marked: list[Path] = []
        self.own = self.root / own[1:]
        for group in (self.own, *self.own.parents):
            if group.is_relative_to(self.root):
                self.add(group)

    def add(self, group: Path) -> None:
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.procs").touch()
        (group / "cgroup.controllers").write_text("cpu memory pids\n")
        (group / "cgroup.subtree_control").touch()

    def divide(self, group: Path) -> None:
        (group / "cgroup.subtree_control").write_text("cpu memory pids\n")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    return Tree(tmp_path, monkeypatch, "/agents.slice/agent.service/leaf")


def test_a_place_is_the_nearest_that_is_delegated_and_divided(tree):
    for group in (tree.root, tree.own.parent, tree.own.parent.parent):
        tree.divide(group)
    assert cgroups.place() is None  # It is not this process's to divide, root or not.
    tree.marked = [tree.root, tree.own.parent, tree.own]
    assert cgroups.place() == tree.own.parent


def test_a_place_of_another_user_is_none(tree, monkeypatch):
    tree.divide(tree.own)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid())
    assert cgroups.place() == (tree.own if os.getuid() else None)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert cgroups.place() is None


def test_there_is_no_place_without_a_tree(tree, monkeypatch):
    monkeypatch.setattr(cgroups, "_MOUNTS", tree.root / "nowhere")
    assert cgroups.place() is None
    cgroups.settle()


def test_a_service_settles_below_its_own_group(tree):
    pid = str(os.getpid())
    (tree.own / "cgroup.procs").write_text(f"{pid}\n1\n")
    (tree.own / "agent").mkdir()
    tree.marked = [tree.own]
    cgroups.settle()  # Not while another process is there.
    assert (tree.own / "cgroup.subtree_control").read_text() == ""
    (tree.own / "cgroup.procs").write_text(f"{pid}\n")
    cgroups.settle()
    assert (tree.own / "agent/cgroup.procs").read_text() == pid
    assert (tree.own / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_a_group_has_bounds_and_dead_keepers_leave_none(tree):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    dead = tree.own / f"farrier-{int(ended.stdout)}-1"
    living = tree.own / f"farrier-{os.getpid()}-1"
    dead.mkdir()
    living.mkdir()
    group = Group(tree.own, 800 * MIB, 99)
    assert (group.path / "memory.max").read_text() == str(700 * MIB)
    assert (group.path / "pids.max").read_text() == "99"
    assert living.exists()
    assert not dead.exists()


def real_tree() -> Path | None:
    """The mount of this machine's tree, if this process may make groups there."""
    try:
        mount = cgroups._mount()
    except (OSError, StopIteration):
        return None
    return (
        mount if os.access(mount, os.W_OK) and os.access(mount / "cgroup.procs", os.W_OK) else None
    )


@pytest.mark.skipif(real_tree() is None, reason="this process may make no control group here")
def test_daemons_in_a_group_are_gone_with_a_fork_server_that_is_killed(strange, monkeypatch):
    """They are in no namespace, and nobody's descendants any more."""
    write = Group._write

    def written(group, name, value):
        if name not in ("memory.max", "pids.max"):
            write(group, name, value)

    monkeypatch.setattr(Group, "_write", written)
    monkeypatch.setattr(cgroups, "place", real_tree)
    with strange("daemons_unhoused") as own:
        child = own.child()
        assert child.level == "cgroup+none"
        group = own._group.path
        wire.ask_for_senders(child.sock)
        daemons = []
        for _ in range(2):
            daemons.append(wire.sender(child.sock, 10.0))
            wire.receive(child.sock)
        with Handle(own._server.greeter) as server:
            server.send(signal.SIGKILL)
            assert server.wait(10.0)
        assert all(map(is_running, daemons))
        own.end()
        assert not any(map(is_running, [child.pid, *daemons]))
        assert not group.exists()
        assert own.child().level == "cgroup+none"
