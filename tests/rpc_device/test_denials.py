"""The deny-list of a process that works with files and processes of its own, by itself.

`tests/worker/test_confinement.py` has all walls of a job's process together."""

from __future__ import annotations

import signal
import subprocess
import sys

from farrier_device import arch, describe

TRIES = """
import ctypes, os, resource, socket, subprocess, sys, threading
from farrier_device import denials
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
if not denials.restrict(libc):
    print("no seccomp")
    sys.exit()

def denied(act):
    try:
        return act() == -1 and ctypes.get_errno() == 1
    except PermissionError:
        return True

one, other = socket.socketpair()
one.send(b"x")
threading.Thread(target=other.recv, args=(1,)).start()
subprocess.run([sys.executable, "-c", "import threading; threading.Thread(target=print).start()"],
    check=True, stdout=subprocess.DEVNULL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
assert denied(socket.socket)
assert denied(os.setsid)
assert denied(lambda: libc.unshare(0x10000000))
assert denied(lambda: libc.ptrace(0, 0, 0, 0))
assert denied(lambda: libc.process_vm_readv(os.getppid(), None, 0, None, 0, 0))
assert denied(lambda: libc.prlimit(os.getppid(), 7, None, None))
assert denied(lambda: libc.syscall(425, 1, None))  # io_uring_setup
child = "import socket; socket.socket()"
assert subprocess.run([sys.executable, "-c", child], stderr=subprocess.DEVNULL).returncode == 1
print("denied")
"""


def test_what_is_denied_and_what_is_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRIES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("denied", "no seccomp")


ALONE = """
import ctypes, fcntl, os, signal, socket, subprocess, sys, threading
from farrier_device import denials
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
if not denials.restrict_alone(libc):
    print("no seccomp")
    sys.exit()

def denied(act):
    try:
        return act() == -1 and ctypes.get_errno() == 1
    except PermissionError:
        return True

done = []
thread = threading.Thread(target=done.append, args=(1,))
thread.start()
thread.join()
assert done
one, other = socket.socketpair()
assert fcntl.fcntl(one, fcntl.F_GETFL) & os.O_RDWR
assert denied(lambda: fcntl.fcntl(one, fcntl.F_SETOWN, os.getppid()))
assert denied(os.fork)
assert denied(lambda: os.execv("/bin/true", ["true"]))
assert denied(lambda: subprocess.run(["true"]))
assert denied(lambda: os.kill(os.getppid(), 0))
assert denied(lambda: libc.syscall(NUMBER, os.getppid(), os.getppid(), 0))
assert denied(socket.socket)
print("denied", flush=True)
libc.abort()
"""


def test_a_process_that_is_to_be_alone_starts_threads_and_no_process() -> None:
    number = arch.calls_of(describe.arch()).numbers["tgkill"]
    done = subprocess.run(
        [sys.executable, "-c", ALONE.replace("NUMBER", str(number))],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stdout.strip() != "no seccomp":
        assert (done.stdout.strip(), done.returncode) == ("denied", -signal.SIGABRT), done.stderr
