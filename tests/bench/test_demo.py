"""`make demo`, on a small network and a small budget."""

import re
import subprocess
import sys
from pathlib import Path

from bench import models

ROOT = Path(__file__).parents[2]


def test_the_demo_goes_from_an_upload_to_a_race(tmp_path):
    model = tmp_path / "net.onnx"
    model.write_bytes(models.build("mobilenet_v2", size=32, stages=1, classes=7))
    done = subprocess.run(
        [sys.executable, "-m", "bench.demo", "--model", model, "--budget", "3s"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert re.search(r"verified on local: error \d\.\de-0[5-9]", said), said
    rows = re.findall(r"^ *(farrier:\w+|onnxruntime) .*?(\d+\.\d+) ", said, re.MULTILINE)
    assert [name for name, _ in rows] == ["farrier:untuned", "farrier:tuned", "onnxruntime"]


def test_a_model_that_does_not_compile_ends_the_demo_with_its_reason(tmp_path):
    model = tmp_path / "net.onnx"
    model.write_bytes(b"hello")
    done = subprocess.run(
        [sys.executable, "-m", "bench.demo", "--model", model, "--budget", "1s"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3
    assert "demo failed: " in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
