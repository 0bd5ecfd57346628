"""The walls around the process in which torch unpickles a stranger's program."""

import subprocess
import sys

import pytest

from farrier_device import seccomp
from farrier_device.sandbox import libc

TRIES = """
import os, socket, sys
from farrier.packaging import torch_child
mine, other = sys.argv[1:]
sys.path.insert(0, mine)
assert torch_child._walled_in()
assert mine not in sys.path

def denied(act):
    try:
        act()
    except PermissionError:
        return True

assert denied(lambda: open(other))
assert denied(lambda: open(mine + "/new", "w"))
assert denied(lambda: os.listdir(mine))
assert denied(lambda: socket.create_connection(("127.0.0.1", 9)))
assert denied(os.fork)
assert denied(lambda: os.execv(sys.executable, ["python"]))
assert denied(lambda: os.kill(os.getppid(), 0))
import decimal, numpy.random  # The installation stays open.
print("walled in")
"""


def has_walls():
    library = libc()
    return seccomp.is_possible(library) and library.syscall(444, None, 0, 1) > 0


def test_the_process_has_no_files_no_network_and_no_other_processes(tmp_path):
    if not has_walls():
        pytest.skip("this kernel lacks landlock or seccomp")
    secret = tmp_path / "secret"
    secret.write_text("a token")
    done = subprocess.run(
        [sys.executable, "-c", TRIES, tmp_path, secret], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "walled in", done.stderr


def test_a_kernel_without_walls_runs_nothing(monkeypatch):
    from farrier.packaging import torch_child

    monkeypatch.setattr(torch_child, "_walled_in", lambda: False)
    with pytest.raises(SystemExit, match="no walls"):
        torch_child._start()
