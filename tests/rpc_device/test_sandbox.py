"""Tests that code in the child cannot affect the rest of the machine."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from farrier_device import sandbox
from farrier_device.child_process import describe_exit, is_from_outside
from farrier_device.measurement import CodeObject, DeviceFault, MeasureRequest, Status, TimingPolicy
from farrier_device.processes import is_running
from farrier_device.runners.children import Children
from farrier_device.runners.local import ChildRunner

ESCAPED = 200  # The kernels return this value if their system call succeeded.


def code_of(runner, folder, library, doubling, symbol) -> int:
    """Return the code that an entry point of `kernels.ll` returned in the child."""
    policy = TimingPolicy(timeout_s=5.0)
    request = MeasureRequest(
        (CodeObject(folder.add(library)),), (doubling.candidate(symbol),), policy
    )
    (only,) = runner.measure(request, folder).results
    assert only.status is Status.CRASHED, only
    prefix, code = only.message.rsplit(" ", 1)
    assert prefix == f"{symbol} returned"
    return int(code)


class TestSystemCalls:
    @pytest.fixture(autouse=True)
    def needs_seccomp(self, runner):
        """This machine's kernel must have it: a suite that skips here would prove nothing."""
        assert "seccomp" in runner.sandbox_level()

    @pytest.mark.parametrize(
        "symbol",
        [
            "open_socket",
            "write_file",
            "write_file_at",
            "fork",
            "clone_process",
            "exec",
            "trace",
            "signal_init",
        ],
    )
    def test_denied(self, runner, folder, library, doubling, symbol):
        assert code_of(runner, folder, library, doubling, symbol) == errno.EPERM
        assert not Path("/tmp/farrier-escapement").exists()

    def test_reading_files_is_denied_by_landlock(self, runner, folder, library, doubling):
        assert "landlock" in runner.sandbox_level()
        assert code_of(runner, folder, library, doubling, "read_file") == errno.EACCES


class TestLevel:
    def test_missing_wall_is_refused(self, folder, library, doubling):
        request = MeasureRequest((CodeObject(folder.add(library)),), (doubling.candidate("right"),))
        with ChildRunner(require="rlimits+hypervisor") as strict:
            with pytest.raises(sandbox.SandboxError, match="hypervisor missing"):
                strict.sandbox_level()
            result = strict.measure(request, folder)
        assert result.fault is DeviceFault.BROKEN
        assert "hypervisor" in result.message

    def test_require_takes_any_order(self):
        sandbox.require("seccomp+landlock+rlimits", "rlimits+seccomp")
        sandbox.require("rlimits", "")
        with pytest.raises(sandbox.SandboxError, match="landlock and seccomp missing"):
            sandbox.require("rlimits", "seccomp+landlock")


class TestProcess:
    @pytest.fixture
    def child(self):
        with Children(sandbox.Limits.of_machine(), "") as own:
            yield own.child()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into the child")
    def test_environment_and_descriptors(self, child):
        proc = Path(f"/proc/{child.pid}")
        assert (proc / "environ").read_bytes() == b""
        names = {os.readlink(link).split(":")[0] for link in (proc / "fd").iterdir()}
        assert names == {"/dev/null", "socket", "/memfd"}
        assert (
            len(list((proc / "fd").iterdir())) == 4
        )  # One socket: the fork server's is not its own.
        assert os.getsid(child.pid) == child.pid
        assert list(Path(os.readlink(proc / "cwd")).iterdir()) == []

    def test_limits(self, child):
        text = Path(f"/proc/{child.pid}/limits").read_text()
        limits = {line[:25].strip(): line[26:].split() for line in text.splitlines()[1:]}
        assert limits["Max core file size"][:2] == ["0", "0"]
        assert limits["Max file size"][:2] == ["65536", "65536"]
        assert limits["Max cpu time"][:2] == ["3600", "3600"]
        assert int(limits["Max address space"][1]) <= os.sysconf("SC_PHYS_PAGES") * os.sysconf(
            "SC_PAGE_SIZE"
        )
        status = Path(f"/proc/{child.pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "Seccomp:\t2" in status
        assert f"CapPrm:\t{0:016x}" in status
        if "pidns" in child.level:
            assert limits["Max processes"][:2] == ["1088", "1088"]

    @pytest.mark.parametrize("stopped", ["child", "server", "behind"])
    def test_dies_with_its_keeper(self, stopped):
        """Also when stopped, which an end of file on a socket would not notice."""
        script = (
            "import os, signal, sys\n"
            "from farrier_device import sandbox\n"
            "from farrier_device.runners.children import Children\n"
            "own = Children(sandbox.Limits.of_machine(), '')\n"
            "child, server = own.child(), own._server\n"
            "pids = dict(child=child.pid, server=server.greeter, behind=server.pid)\n"
            "os.kill(pids[sys.argv[1]], signal.SIGSTOP)\n"
            "print(*pids.values(), child.folder, server._directory, flush=True)\n"
            "os._exit(0)\n"
        )
        path = os.pathsep.join(sys.path)
        done = subprocess.run(
            [sys.executable, "-c", script, stopped],
            env={"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
        *pids, folder, directory = done.stdout.split()
        os.rmdir(folder)
        os.rmdir(directory)
        for _ in range(100):
            if not any(is_running(int(pid)) for pid in pids):
                return
            time.sleep(0.02)
        pytest.fail(f"one of {pids} outlived its keeper")

    def test_child_that_cannot_start_says_why(self):
        with pytest.raises(
            sandbox.SandboxError, match=r"No module named 'farrier_device\.nothing'"
        ):
            sandbox.SandboxedProcess(
                "farrier_device.nothing", sandbox.Limits.of_machine(), name="it"
            )

    def test_interpreter_that_cannot_be_executed(self, monkeypatch, tmp_path):
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        with pytest.raises(sandbox.SandboxError, match="cannot be started"):
            sandbox.SandboxedProcess(
                "farrier_device.fork_server", sandbox.Limits.of_machine(), name="it"
            )

    def test_exit_in_words(self):
        assert describe_exit(-11) == "killed by SIGSEGV"
        assert describe_exit(3) == "exited with 3"
        assert describe_exit(-63) == "killed by signal 63"

    def test_signals_from_outside(self):
        codes = (None, 0, 1, 9, -6, -9, -11, -15)
        assert [code for code in codes if is_from_outside(code)] == [-9, -15]
