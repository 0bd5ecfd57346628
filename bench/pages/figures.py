"""Measure the latency of pages and events, and the browser's resources while it watches a job."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.table import Table

from bench.pages.browser import launch
from bench.pages.serving import serving
from bench.seeded.__main__ import hasty
from bench.seeded.jobs import BATCH, SeededJob, seed_long
from farrier_farm.farm import Farm
from farrier_farm.redis import embedded

# Runs before any script of a page: what takes the browser long, and when a text appears.
PROBE = """
window.longTasks = [];
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longTasks.push([entry.startTime, entry.duration]);
}).observe({type: 'longtask', buffered: true});
window.whenSeen = (text) => new Promise((resolve) => {
    const look = () => document.body.textContent.includes(text);
    if (look()) return resolve(Date.now() / 1000);
    const observer = new MutationObserver(() => {
        if (!look()) return;
        observer.disconnect();
        requestAnimationFrame(() => resolve(Date.now() / 1000));
    });
    observer.observe(document.body, {subtree: true, childList: true, characterData: true});
});
"""
_SAMPLES_S = 15.0
_RENEWS_S = 4.0
_PLACES = {
    "overview": "/",
    "jobs": "/jobs",
    "job": "/jobs/{done}",
    "kernels": "/jobs/{done}/model",
    "long job": "/jobs/{long}",
    "compare": "/compare?jobs={done},{other}",
    "devices": "/devices",
    "device": "/devices/{device}",
    "records": "/records",
    "submit": "/submit",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Opening:
    """The times of loading a page, in milliseconds since the navigation; `longest` is the duration
    of the longest task of the page's main thread."""

    paint: float
    complete: float
    longest: float


def measure(arguments: argparse.Namespace, console: Console) -> None:
    """Seed a farm for the measurement, and print all figures."""
    with serving() as (url, token, settings), contextlib.ExitStack() as stack:
        seeded = subprocess.Popen(
            [sys.executable, "-m", "bench.seeded", str(settings.home), "--live", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(seeded.wait)
        stack.callback(seeded.send_signal, signal.SIGINT)
        assert seeded.stdout is not None
        console.print(seeded.stdout.readline().strip())
        valkey = embedded.start(settings)  # This attaches to the running server.
        stack.callback(valkey.stop)
        farm = stack.enter_context(contextlib.closing(Farm.open(settings)))
        with hasty(farm, True):
            job = seed_long(farm, random.Random(1), arguments.trials)
        browser = launch(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        places = _places(url, token, job.lease.item)
        open_pages(browser, url, token, places, arguments.rounds, console)
        page = enter(browser, url, token)
        page.goto(url + places["long job"])
        complete(page)
        page.wait_for_timeout(2000)
        renew = functools.partial(farm.jobs.renew, job.lease)
        watch(page, job, renew, arguments.minutes, arguments.rate, console)


def _places(url: str, token: str, long: str) -> dict[str, str]:
    """Return the URLs of the pages by name; `long` is the id of the job with many trials."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as http:
        done = http.get("/v1/jobs?state=succeeded&limit=2").raise_for_status().json()["jobs"]
        devices = http.get("/v1/devices?limit=1").raise_for_status().json()["devices"]
    ids = {"long": long, "done": done[0]["id"], "other": done[1]["id"], "device": devices[0]["id"]}
    return {name: place.format(**ids) for name, place in _PLACES.items()}


def open_pages(
    browser: Any, url: str, token: str, places: Mapping[str, str], rounds: int, console: Console
) -> None:
    """Open each page `rounds` times with an empty browser cache, and print the median and the worst
    times."""
    table = Table(box=None)
    table.add_column("page")
    for name in ("first paint, ms", "worst", "complete, ms", "worst", "longest task, ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, place in places.items():
        seen = [_opened(browser, url, token, place) for _ in range(rounds)]
        paints, completes = (
            [opening.paint for opening in seen],
            [opening.complete for opening in seen],
        )
        figures = (
            *(statistics.median(paints), max(paints)),
            *(
                statistics.median(completes),
                max(completes),
                max(opening.longest for opening in seen),
            ),
        )
        table.add_row(name, *(f"{figure:.0f}" for figure in figures))
    console.print(table)


def _opened(browser: Any, url: str, token: str, place: str) -> Opening:
    page = enter(browser, url, token)
    page.goto(url + place)
    complete(page)
    paint, ready = page.evaluate(
        "[performance.getEntriesByName('first-contentful-paint')[0].startTime, performance.now()]"
    )
    page.wait_for_timeout(500)  # what comes after
    longest = max((task[1] for task in page.evaluate("longTasks")), default=0.0)
    page.context.close()
    return Opening(paint, ready, longest)


def enter(browser: Any, url: str, token: str, **options: Any) -> Any:
    """Return a page in a new browser context, logged in and with the measuring script installed."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    context.add_init_script(PROBE)
    answer = context.request.post(f"{url}/v1/session", data={"token": token})
    assert answer.ok, answer.text()
    return context.new_page()


def complete(page: Any) -> None:
    """Wait until the page shows all of its data."""
    page.wait_for_selector("h1")
    page.wait_for_selector(".loading", state="detached")


def watch(
    page: Any,
    job: SeededJob,
    renew: Callable[[], None],
    minutes: float,
    per_second: float,
    console: Console,
) -> None:
    """Watch the page of a running job while its worker reports new trials, and print the page's
    figures."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.evaluate("longTasks.length = 0")
    delays: list[float] = []
    samples = [_sample(session)]
    began = sampled = renewed = time.monotonic()
    count = 0
    while (now := time.monotonic()) < began + 60 * minutes:
        count += 1
        if count % max(1, round(2 * per_second)) == 0:
            delays.append(_delay(page, job))
        else:
            job.measure(BATCH, 2 * job.trials)
        if now > sampled + _SAMPLES_S:
            samples.append(_sample(session))
            sampled = now
        if now > renewed + _RENEWS_S:
            renew()
            renewed = now
        page.wait_for_timeout(max(0.0, 1000 * (began + count / per_second - time.monotonic())))
    tasks = sorted(round(task[1]) for task in page.evaluate("longTasks"))
    seconds = time.monotonic() - began
    console.print(f"{count} events in {seconds:.0f} s, {job.trials:,} trials in the end")
    console.print(f"an event is seen after {_spread(delays)} s (median, 95 %, worst)")
    console.print(f"tasks of more than 50 ms: {len(tasks)}, the longest in ms {tasks[-5:]}")
    table = Table(box=None)
    for name in ("", "heap, MB", "DOM nodes", "listeners"):
        table.add_column(name, justify="right")
    for name, at in (("begin", 0), ("half", len(samples) // 2), ("end", -1)):
        heap, nodes, listeners = samples[at]
        table.add_row(name, f"{heap:.1f}", f"{nodes:.0f}", f"{listeners:.0f}")
    console.print(table)


def _delay(page: Any, job: SeededJob) -> float:
    """Return the seconds from the emission of an event to the frame that shows its count of
    trials."""
    written = f"{job.trials + BATCH:,}".replace(",", "\u202f")
    page.evaluate("(text) => { window.seen = whenSeen(text); }", written)
    said = time.time()
    job.measure(BATCH, 2 * job.trials)
    return float(page.evaluate("window.seen")) - said


def _sample(session: Any) -> tuple[float, float, float]:
    """Return the heap after a garbage collection in MB, and the numbers of DOM nodes and
    listeners."""
    session.send("HeapProfiler.collectGarbage")
    metrics = {
        metric["name"]: metric["value"]
        for metric in session.send("Performance.getMetrics")["metrics"]
    }
    return metrics["JSHeapUsedSize"] / 1e6, metrics["Nodes"], metrics["JSEventListeners"]


def _spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    picked = (statistics.median(ordered), ordered[int(0.95 * (len(ordered) - 1))], ordered[-1])
    return " / ".join(f"{value:.2f}" for value in picked)
