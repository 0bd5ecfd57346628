"""The wheel with all its extras in a fresh environment, outside any checkout: `make wheel`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import models
from tests.artifact.wheels import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Installed:
    """A virtual environment, and a folder where its user works."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.work = folder / "venv" / "bin", folder / "work"
        self.work.mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FARRIER_", "PYTHON"))}
        # The socket of the embedded server needs a short path.
        self.environment = {**kept, "HOME": str(self.work), "FARRIER_HOME": str(self.work / "h")}

    def __call__(self, *words: str, timeout: float = 300) -> str:
        """Return the output of a command, which has to end with 0."""
        done = subprocess.run(
            [self.bin / words[0], *words[1:]],
            cwd=self.work,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dist"))[1]


def install(folder, wheel, extras):
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    installed = Installed(folder)
    installed("pip", "install", "--quiet", f"{wheel}{extras}", timeout=1500)
    return installed


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel):
    environment = install(tmp_path_factory.mktemp("all"), wheel, "[all]")
    data = models.build("resnet18", width=16, classes=11, batch="batch", size=64)
    (environment.work / "m.onnx").write_bytes(data)
    np.save(environment.work / "x.npy", np.ones((3, 3, 64, 64), np.float32))
    return environment


def test_the_compiler(installed):
    assert "compile" in installed("farrier", "--help")
    assert "up" in installed("farrier", "--help")
    assert "--broker" in installed("farrier-device", "--help")
    assert installed("farrier", "compile", "m.onnx").strip() == "m.farrier"
    assert "logits: float32[3, 11]" in installed(
        "farrier", "run", "m.farrier", "--input", "x=x.npy"
    )
    raced = installed("farrier", "bench", "m.onnx", "--against", "onnxruntime", "--rounds", "1")
    assert "onnxruntime" in raced
    where = installed("python", "-c", "import farrier; print(farrier.__file__)")
    assert str(installed.bin.parent) in where


def test_the_service(installed):
    up = subprocess.Popen(
        [installed.bin / "farrier", "up", "--port", "0", "--broker-port", "0"],
        cwd=installed.work,
        env=installed.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = up.stdout.readline()
        installed.environment["FARRIER_SERVER"] = re.search(r"up at (\S+)", said)[1]
        job = installed("farrier", "submit", "m.onnx", "--wait-for-device").strip()
        assert "succeeded" in installed("farrier", "watch", job)
        installed("farrier", "fetch", job, "-o", "served.farrier")
        printed = installed("farrier", "run", "served.farrier", "--input", "x=x.npy")
        assert "logits: float32[3, 11]" in printed
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=60)
    assert up.returncode in (0, 130)


def test_the_base_install_is_numpy_and_farrier(tmp_path, wheel, installed):
    installed("farrier", "compile", "m.onnx")
    base = install(tmp_path, wheel, "")
    lines = base("pip", "list", "--format", "freeze").splitlines()
    packages = {re.split("==| @", line)[0] for line in lines}
    assert packages - {"pip", "setuptools"} == {"farrier", "numpy"}
    artifact, x = installed.work / "m.farrier", installed.work / "x.npy"
    program = (
        "import farrier, numpy, sys; artifact = farrier.load(sys.argv[1]); "
        "print(artifact.run({'x': numpy.load(sys.argv[2])})['logits'].shape)"
    )
    assert base("python", "-c", program, str(artifact), str(x)).strip() == "(3, 11)"
