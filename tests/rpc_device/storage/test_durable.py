"""Files that are written whole or not at all, whatever ends the writing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from farrier_device.storage import durable


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole_and_has_its_mode(tmp_path):
    path = tmp_path / "file"
    before = os.umask(0o077)
    try:
        for data, mode in ((b"one", 0o600), (b"two", 0o644)):
            with durable.replacing(path, mode=mode) as file:
                file.write(data)
            assert path.read_bytes() == data
            assert path.stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)
    assert names(tmp_path) == ["file"]


def test_an_error_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail():
        with durable.replacing(path) as file:
            file.write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_killed_process_leaves_what_was_there_and_a_draft(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    program = (
        "import os, pathlib, signal, sys\n"
        "from farrier_device.storage import durable\n"
        "with durable.replacing(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(bytes(100_000))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert run.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    draft, kept = names(tmp_path)
    assert kept == "file"
    assert draft.startswith(".file.")


def test_one_of_several_creates_a_file(tmp_path):
    path, created = tmp_path / "file", []
    ready = threading.Barrier(4)

    def create(number):
        ready.wait()
        created.append((durable.create(path, bytes([number]) * 1000), number))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [number for is_ours, number in created if is_ours]
    assert path.read_bytes() == bytes([winner]) * 1000
    assert names(tmp_path) == ["file"]


def test_appended_bytes_follow_those_before(tmp_path):
    for data in (b"one ", b"two"):
        durable.append(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == b"one two"


def test_a_pipe_that_takes_few_bytes_at_a_time_gets_all(tmp_path):
    """write(2) takes what a pipe that does not block has room for."""
    read, write = os.pipe()
    got = []

    def drain():
        while piece := os.read(read, 1000):
            got.append(piece)

    thread = threading.Thread(target=drain)
    thread.start()
    data = bytes(range(256)) * 1000
    durable.write_all(write, memoryview(data).cast("H"))
    os.close(write)
    thread.join()
    os.close(read)
    assert b"".join(got) == data
