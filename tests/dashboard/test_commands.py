"""The command line and the Python that the pages show: run, they submit the same job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dashboard.conftest import SHAPES
from tests.up import write_model

pytestmark = pytest.mark.browser

IMPORTED = "async ([path, request]) => (await import(path)).{}(request)"
REQUESTS = [
    {"options": {"shapes": {name: list(dims) for name, dims in SHAPES.items()}, "trials": 4}},
    {
        "name": 'it\'s $(a) \u202ename\\ of "many" words',
        "wait_for_device": True,
        "private": True,
        "options": {
            "shapes": {"x": ["batch:1..8", 3, 13, 17]},
            "hot": [{"batch": 4}],
            "typical": {"batch": 2},
            "budget_s": 1.5,
            "threads": 2,
            "seed": 7,
            "max_layer_error": 0,
        },
    },
    {"options": {"shapes": {"x": ["?", 3, 13, 17]}, "hot": [], "verify": False}},
]
SAME = ("name", "options", "target", "model", "wait_for_device", "against", "private")


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path / "net one.onnx")
    return tmp_path


def shown(page, up, function, request):
    """The text that the page has for a request of the REST API."""
    page.goto("/")
    script = page.locator("script[src$='app/main.js']").get_attribute("src")
    module = script.replace("main.js", "lib/commands.js")
    return page.evaluate(IMPORTED.format(function), [module, request])


@pytest.mark.parametrize("asked", REQUESTS, ids=["plain", "all", "none"])
def test_what_is_shown_submits_the_same_job(page, up, api, folder, asked):
    (device_class,) = api.get("/v1/classes").json()["classes"]
    target = f"class:{device_class['id']}"
    with up.client() as client:
        model = client.upload(folder / "net one.onnx")
    body = {"name": "net one", **asked, "model": model}
    body["options"] = {**asked["options"], "target": target}
    expected = api.post("/v1/jobs", json=body).json()
    request = {**body, "file": "net one.onnx"}
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**up.environment, "PATH": tools, "LC_ALL": "C.UTF-8"}

    line = shown(page, up, "commandLine", request)
    job_id = run(["bash", "-c", line], folder, environment).strip()
    assert_same(api, job_id, expected)

    text = re.sub(
        r"\n    job = client\.wait.*",
        "\n    print(job.id)\n",
        shown(page, up, "python", request),
        flags=re.S,
    )
    job_id = run([sys.executable, "-c", text], folder, environment).strip()
    assert_same(api, job_id, expected)


def assert_same(api, job, expected):
    got = api.get(f"/v1/jobs/{job}").json()
    assert {name: got[name] for name in SAME} == {name: expected[name] for name in SAME}
    api.delete(f"/v1/jobs/{job}")


def run(words, folder, environment):
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
