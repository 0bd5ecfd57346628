"""Capture every page of the dashboard: light, dark, and at the width of a phone."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console

from bench.demo import Service
from bench.pages.browser import launch
from bench.pages.figures import complete, enter
from bench.workloads import workload
from farrier.sdk.client import Client

DESK = {"width": 1280, "height": 800}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": DESK},
    "dark": {"color_scheme": "dark", "viewport": DESK},
    "phone": {
        "color_scheme": "light",
        "viewport": {"width": 390, "height": 844},
        "has_touch": True,
        "is_mobile": True,
    },
}
_PLACES = {
    "overview": "/",
    "jobs": "/jobs",
    "live": "/jobs/{running}",
    "job": "/jobs/{job}",
    "kernels": "/jobs/{job}/model",
    "compare": "/compare?jobs={other},{job}",
    "devices": "/devices",
    "device": "/devices/{device}",
    "records": "/records",
    "submit": "/submit?model={model}",
    "model": "/models/{model}",
    "docs": "/docs",
}
_MODEL = "mobilenet_v2"
_RUNNING = 6  # The jobs that bench.seeded leaves running.
_COLOURS = 128
_TALLEST = 2400  # Pixels; a longer page is cut.


def take_all(folder: Path, budget_s: float, console: Console) -> None:
    """Capture the pages of a seeded farm, and of jobs that it has tuned itself."""
    with tempfile.TemporaryDirectory(prefix="farrier-") as place, contextlib.ExitStack() as stack:
        home = Path(place)
        running = stack.enter_context(_seeded(home, console))
        service = stack.enter_context(Service(home, console))
        places = _places(service, running, budget_s, home, console)
        browser = launch(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        take(browser, service.url, service.token, places, folder)


@contextlib.contextmanager
def _seeded(home: Path, console: Console) -> Iterator[str]:
    """A context in which a home folder's farm is filled with data by `bench.seeded`, which keeps
    running; it yields the id of the newest running job."""
    words = [*("--jobs", "153"), *("--trials", "6000"), *("--live", "40")]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.seeded", str(home), *words],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        console.print(process.stdout.readline().strip())
        ids = [process.stdout.readline().split()[-1] for _ in range(_RUNNING)]
        yield ids[-1]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def _places(
    service: Service, running: str, budget_s: float, home: Path, console: Console
) -> dict[str, str]:
    """Return the URLs of the pages by name, after running the jobs that they show."""
    load = workload(_MODEL)
    path = home / f"{_MODEL}.onnx"
    path.write_bytes(load.build())
    with Client(service.url, service.token) as client:
        device = next(connected.id for connected in client.devices() if connected.id == "local")
        target = f"device:{device}"
        jobs = []
        for budget in (budget_s / 4, budget_s):
            console.print(f"tuning {_MODEL} for {budget:.0f} s")
            name = f"{_MODEL}, {budget:.0f} s"
            job = client.submit(path, target=target, shapes=load.shapes, budget_s=budget, name=name)
            jobs.append(client.wait(job.id))
    ids = {"job": jobs[1].id, "other": jobs[0].id, "model": jobs[1].model}
    _prepare(service, f"/v1/jobs/{ids['job']}/listing")
    _prepare(service, f"/v1/models/{ids['model']}/inspection")
    ids |= {"running": running, "device": device}
    return {name: place.format(**ids) for name, place in _PLACES.items()}


def _prepare(service: Service, path: str) -> None:
    """Request a page's data from the API until a worker has prepared it."""
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=30) as http:
        http.post(path).raise_for_status()
        while http.get(path).raise_for_status().json()["state"] in ("queued", "running"):
            time.sleep(0.5)


def take(browser: Any, url: str, token: str, places: Mapping[str, str], folder: Path) -> None:
    """Write a file `PAGE-LOOK.png` to the folder for each page and look."""
    folder.mkdir(parents=True, exist_ok=True)
    for look, options in LOOKS.items():
        page = enter(browser, url, token, **options)
        for name, place in places.items():
            page.goto(url + place)
            if name != "docs":
                complete(page)
            page.wait_for_timeout(1000)  # charts, graphs
            path = folder / f"{name}-{look}.png"
            height = min(page.evaluate("document.documentElement.scrollHeight"), _TALLEST)
            width = options["viewport"]["width"]
            clip = {"x": 0, "y": 0, "width": width, "height": height}
            path.write_bytes(page.screenshot(full_page=True, clip=clip, animations="disabled"))
            _shrink(path)
        page.context.close()


def _shrink(path: Path) -> None:
    """Convert a picture to a palette image, which makes the file smaller."""
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
