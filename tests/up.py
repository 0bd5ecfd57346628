"""The whole service as users start it, `farrier up`, and a small model for it."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from farrier.sdk.client import Client

BEAT_S = 5.0  # The expiry of leases and devices in these tests.
HANGS_S = 280.0  # A test that hangs for a while does not take this long.


class Up:
    """`farrier up`; start it, stop it, start it again: the home stays."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.home = home
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("FARRIER_", "REDIS_"))}
        self.environment = {
            **clean,
            "FARRIER_HOME": str(home),
            "FARRIER_LEASE_S": str(BEAT_S),
            "FARRIER_DEVICE_EXPIRY_S": str(BEAT_S),
            "FARRIER_MIN_FREE_BYTES": "1",
            **settings,
        }
        self.url = self.token = ""
        self.said: list[str] = []
        self.process: subprocess.Popen[str] | None = None

    def launch(self, *words: str) -> subprocess.Popen[str]:
        """Start the process and wait for nothing."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "farrier.cli", "up", *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self.process

    def start(self, port: int = 0) -> Up:
        """Wait until it reports that it is up; the API listens on `port`, or on a free one."""
        process = self.launch("--port", str(port), "--broker-port", "0")
        assert process.stdout is not None
        self.said = []
        for line in process.stdout:
            self.said.append(line)
            if line.startswith("data is kept in"):
                break
        said = "".join(self.said)
        assert process.poll() is None, said
        self.url = re.search(r"up at (\S+)", said)[1]
        self.token = re.search(r"token: (\S+)", said)[1]
        return self

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Send the signal; its exit code, and what it said since."""
        assert self.process is not None
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=HANGS_S)
        return self.process.returncode, rest

    def client(self) -> Client:
        return Client(self.url, self.token, ca=self.environment.get("FARRIER_TLS_CERT"))

    def command(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """`farrier WORDS` as its user would run it on this machine."""
        environment = {**self.environment, "FARRIER_SERVER": self.url}
        done = subprocess.run(
            [sys.executable, "-m", "farrier.cli", *map(str, words)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANGS_S,
            check=False,
        )
        assert "Traceback" not in done.stderr + done.stdout, done.stderr
        return done

    def pids(self, words: str) -> list[int]:
        """The processes of this installation whose command line contains `words`."""
        matching = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if words in command and self._has(entry):
                    matching.append(int(entry.name))
            except OSError:  # it is gone
                continue
        return matching

    def _has(self, process: Path) -> bool:
        """Return whether a process has this home, or is a job's process: its environment does not
        name the home, but its parent's does."""
        mine = f"FARRIER_HOME={self.home}\0".encode()
        if mine in (process / "environ").read_bytes() + b"\0":
            return True
        parent = re.search(r"^PPid:\s+(\d+)$", (process / "status").read_text(), re.MULTILINE)[1]
        return mine in Path(f"/proc/{parent}/environ").read_bytes() + b"\0"

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.end()
        for pid in self.pids(""):
            os.kill(pid, signal.SIGKILL)
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()


def write_model(path: Path, seed: int = 0) -> Path:
    """Convolution, bias, Relu, pooling, matrix product: `x` f32[n, 3, 13, 17] → `y` f32[n, 5]."""
    generator = np.random.default_rng(seed)
    constants = {
        name: 0.3 * generator.standard_normal(shape, np.float32)
        for name, shape in {"w": (19, 3, 3, 3), "b": (19,), "v": (19, 5), "c": (5,)}.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "c"], ["y"]),
    ]
    return _saved(path, nodes, constants, ["n", 5])


def write_deep_model(path: Path) -> Path:
    """A chain of convolutions, `x` f32[n, 3, 13, 17] → `y` f32[n, 56, 13, 17], with channels of
    their own, so that their tuning takes minutes."""
    generator = np.random.default_rng(0)
    channels = [3, *range(33, 57)]
    constants = {
        f"w{n}": generator.standard_normal((after, before, 3, 3), np.float32) / before
        for n, (before, after) in enumerate(itertools.pairwise(channels))
    }
    names = ["x", *(f"h{n}" for n in range(len(constants) - 1)), "y"]
    nodes = [
        helper.make_node("Conv", [names[n], f"w{n}"], [names[n + 1]], pads=[1, 1, 1, 1])
        for n in range(len(constants))
    ]
    return _saved(path, nodes, constants, ["n", channels[-1], 13, 17])


def _saved(
    path: Path,
    nodes: list[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    outputs: list[int | str],
) -> Path:
    """Write a model from `x` f32[n, 3, 13, 17] to `y` f32[outputs]."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 13, 17])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, outputs)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path
