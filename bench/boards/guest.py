"""A Python process in the emulated root that runs artifacts, one after another."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.boards import arrays, board
from bench.boards.arrays import Arrays
from bench.boards.root import HOME, INSIDE, REPOSITORY, Root
from farrier.runtime.artifact import Artifact
from farrier_device.closing import Closing


class GuestError(Exception):
    """Error: an artifact could not be run in the emulated root, because of an error there, a crash,
    or a timeout."""


@contextlib.contextmanager
def exchange() -> Iterator[Path]:
    """Return a context with a folder that is visible to this machine and to the emulated root."""
    HOME.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="exchange-", dir=HOME) as name:
        yield Path(name)


class Guest(Closing):
    """A Python process in the emulated root, which is started at first use, and again if it has
    died."""

    def __init__(
        self, root: Root, folder: Path, timeout_s: float = 600.0, cpu: str = board.QEMU_CPU
    ) -> None:
        """Prepare a guest without starting it. `folder` is a folder from `exchange` for the
        artifacts of this guest only."""
        self._root = root
        self._cpu = cpu
        self._folder = folder
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, artifact: Artifact, inputs: Arrays) -> Arrays:
        """Run an artifact and return its outputs by name. Raises GuestError."""
        artifact.save(self._folder / "model.farrier")
        arrays.save(self._folder / "inputs", inputs)
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(b"\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], self._timeout_s)[0]:
                self._end()
                raise GuestError(f"no answer after {self._timeout_s:g} s")
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            code = process.wait()
            self._end()
            raise GuestError(f"the Python in the root ended with {code}")
        failure: str | None = json.loads(answer)
        if failure is not None:
            raise GuestError(failure)
        return arrays.load(self._folder / "outputs")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            pipe = subprocess.PIPE
            inside = f"{INSIDE}/{self._folder.relative_to(REPOSITORY)}"
            words = ["-m", "bench.boards.inside", inside]
            self._process = self._root.start(words, self._cpu, stdin=pipe, stdout=pipe)
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def close(self) -> None:
        """End the process; further calls have no effect."""
        self._end()
