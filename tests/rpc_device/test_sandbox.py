"""What code in the child can do to the rest of the machine: nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from farrier_device import sandbox
from farrier_device.measurement import DeviceFault, MeasureRequest, Status, TimingPolicy
from farrier_device.runners.local import ChildRunner

ESCAPED = 200  # what the kernels return when their system call went through


def code_of(runner, folder, library, doubling, symbol) -> int:
    """What an entry point of `kernels.ll` returned, in the child."""
    policy = TimingPolicy(timeout_s=5.0)
    request = MeasureRequest(folder.add(library), (doubling.candidate(symbol),), policy)
    (only,) = runner.measure(request, folder).results
    assert only.status is Status.CRASHED, only
    prefix, code = only.message.rsplit(" ", 1)
    assert prefix == f"{symbol} returned"
    return int(code)


def state_of(pid) -> str:
    """The letter of /proc for a process, "" where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may end while the file is open
        return ""
    return text.rpartition(")")[2].split()[0]


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
        request = MeasureRequest(folder.add(library), (doubling.candidate("right"),))
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
        process = sandbox.SandboxedProcess("farrier_device.child", sandbox.Limits.of_machine())
        yield process
        process.kill()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into the child")
    def test_environment_and_descriptors(self, child):
        proc = Path(f"/proc/{child.pid}")
        assert (proc / "environ").read_bytes() == b""
        names = {os.readlink(link).split(":")[0] for link in (proc / "fd").iterdir()}
        assert names == {"/dev/null", "socket", "/memfd"}
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

    def test_dies_with_its_parent(self):
        """Also when stopped, which an end of file on its socket would not notice."""
        script = (
            "import os, signal, time\n"
            "from farrier_device import sandbox\n"
            "limits = sandbox.Limits.of_machine()\n"
            "child = sandbox.SandboxedProcess('farrier_device.child', limits)\n"
            "os.kill(child.pid, signal.SIGSTOP)\n"
            "print(child.pid, child._directory, flush=True)\n"
            "os._exit(0)\n"
        )
        path = os.pathsep.join(sys.path)
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        pid, directory = done.stdout.split()
        os.rmdir(directory)
        for _ in range(100):
            if state_of(pid) in ("", "Z"):
                return
            os.sched_yield()
            subprocess.run(["sleep", "0.02"], check=True)
        pytest.fail(f"child {pid} outlived its parent")

    def test_child_that_cannot_start_says_why(self):
        with pytest.raises(
            sandbox.SandboxError, match=r"No module named 'farrier_device\.nothing'"
        ):
            sandbox.SandboxedProcess("farrier_device.nothing", sandbox.Limits.of_machine())

    def test_interpreter_that_cannot_be_executed(self, monkeypatch, tmp_path):
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        with pytest.raises(sandbox.SandboxError, match="cannot be started"):
            sandbox.SandboxedProcess("farrier_device.child", sandbox.Limits.of_machine())

    def test_exit_in_words(self):
        assert sandbox.describe_exit(-11) == "killed by SIGSEGV"
        assert sandbox.describe_exit(3) == "exited with 3"
        assert sandbox.describe_exit(-63) == "killed by signal 63"

    def test_signals_from_outside(self):
        codes = (None, 0, 1, 9, -6, -9, -11, -15)
        assert [code for code in codes if sandbox.is_from_outside(code)] == [-9, -15]
