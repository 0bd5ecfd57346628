"""Tests of the memory that the processes of a job hold together."""

import subprocess
import sys

import pytest

_HOLDS = """
import mmap, os, sys
from farrier_worker.memory import held_bytes

nbytes, count = 40 << 20, 3
before = held_bytes(os.getpgrp())
where = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR) if sys.argv[1] == "file" else -1
if where >= 0:
    os.truncate(where, nbytes)
pages = mmap.mmap(where, nbytes, mmap.MAP_SHARED if where >= 0 else mmap.MAP_PRIVATE)
pages[:] = bytes(range(256)) * (nbytes >> 8)
ends, children = [], []
for _ in range(count):
    ready, go = os.pipe(), os.pipe()
    if not (child := os.fork()):
        sum(pages[::4096])
        os.write(ready[1], b"r")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    ends.append(go[1])
    children.append(child)
exact, cheap = held_bytes(os.getpgrp()) - before, held_bytes(os.getpgrp(), 1 << 40)
for end, child in zip(ends, children):
    os.write(end, b"g")
    os.waitpid(child, 0)
assert cheap >= (count + 1) * nbytes, cheap
assert nbytes * 0.9 < exact < 2 * nbytes, exact
"""


@pytest.mark.parametrize("pages", ["file", "anonymous"])
def test_a_page_that_processes_share_counts_once(pages):
    done = subprocess.run(
        [sys.executable, "-c", _HOLDS, pages],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
