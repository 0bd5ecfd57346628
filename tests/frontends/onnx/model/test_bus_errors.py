"""Pages of files that cannot be read: noted, and laid to the model whose pages they are."""

import subprocess
import sys

import pytest

_SCRIPT = """
import contextlib, os, sys
from farrier.frontends.onnx.model.bus_errors import reading
from farrier.frontends.onnx.model.file import Model

own, other = (Model.of_path(path) for path in sys.argv[1:3])
what = sys.argv[3]

def looks(model):
    before, found = os.stat(model.path), bytes(model.message[:4096])
    os.truncate(model.path, 0)
    assert bytes(model.message[:4096]) != found  # zeros now
    if what == "restored":  # as a disk that cannot be read: the file says nothing of it
        model.path.write_bytes(found)
        os.utime(model.path, ns=(before.st_atime_ns, before.st_mtime_ns))

try:
    with reading(own):
        if what == "other":
            with contextlib.suppress(Exception), reading(other):
                looks(other)
        else:
            looks(own)
        if what == "stopped":
            raise KeyboardInterrupt
        if what == "zeros":
            raise ZeroDivisionError
    print("fine")
except BaseException as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("other", "fine"),
        ("own", "InvalidModelError"),
        ("zeros", "InvalidModelError"),
        ("restored", "StorageError a page of a file could not be read"),
        ("stopped", "KeyboardInterrupt"),
    ],
)
def test_who_is_told_of_a_bus_error(tmp_path, what, said):
    paths = [tmp_path / "own.onnx", tmp_path / "other.onnx"]
    for path in paths:
        path.write_bytes(b"x" * 4096)
    command = [sys.executable, "-c", _SCRIPT, *map(str, paths), what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(said), done.stdout + done.stderr
