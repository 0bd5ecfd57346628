"""`make demo`, on a small network and a small budget."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from bench import models

ROOT = Path(__file__).parents[2]


@pytest.mark.long
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
    assert re.search(r"the dashboard was http://127\.0\.0\.1:\d+/", said.splitlines()[-1]), said


@pytest.mark.long
def test_the_demo_is_kept_up_until_a_signal(tmp_path):
    """As `kill` sends it."""
    model = tmp_path / "net.onnx"
    model.write_bytes(models.build("mobilenet_v2", size=32, stages=1, classes=7))
    demo = subprocess.Popen(
        [sys.executable, "-m", "bench.demo", "--model", model, "--budget", "1s", "--keep"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        for line in demo.stdout:
            if match := re.search(r"the dashboard is (\S+); log in with the token in (\S+);", line):
                break
        url, token = match[1], Path(match[2]).read_text().strip()
        assert httpx.get(url).headers["content-type"].startswith("text/html")
        answer = httpx.post(f"{url}v1/session", json={"token": token})
        assert answer.status_code == 200
        demo.send_signal(signal.SIGTERM)
        said = demo.communicate(timeout=60)[0]
        assert demo.returncode == 0, said
        with pytest.raises(httpx.ConnectError):
            httpx.get(url)
    finally:
        demo.kill()


@pytest.mark.long
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
