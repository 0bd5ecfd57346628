"""How soon pages show something, how soon an event is seen, what watching costs the browser."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from farrier.progress import TrialsMeasured

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


@dataclasses.dataclass(frozen=True, slots=True)
class Opening:
    """Milliseconds since the navigation; `longest` is of the page's tasks."""

    paint: float
    complete: float
    longest: float


def open_pages(
    browser: Any, url: str, token: str, places: Mapping[str, str], rounds: int, console: Console
) -> None:
    """Each page `rounds` times, by a browser that has nothing of it; the median and the worst."""
    table = Table(box=None)
    table.add_column("page")
    for name in ("first paint, ms", "worst", "complete, ms", "worst", "longest task, ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, place in places.items():
        seen = [_opened(browser, url, token, place) for _ in range(rounds)]
        paints, completes = [one.paint for one in seen], [one.complete for one in seen]
        figures = (
            *(statistics.median(paints), max(paints)),
            *(statistics.median(completes), max(completes), max(one.longest for one in seen)),
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
    """A page of a browser of its own, logged in and probed."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    context.add_init_script(PROBE)
    answer = context.request.post(f"{url}/v1/session", data={"token": token})
    assert answer.ok, answer.text()
    return context.new_page()


def complete(page: Any) -> None:
    """Waits until the page shows all that it has to say."""
    page.wait_for_selector("h1")
    page.wait_for_function("document.querySelector('.loading') === null")


def watch(
    page: Any,
    say: Callable[[TrialsMeasured], None],
    trials: int,
    minutes: float,
    per_second: float,
    console: Console,
) -> None:
    """The page of a running job of `trials` trials, while `say` tells it of more."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.evaluate("longTasks.length = 0")
    delays: list[float] = []
    samples = [_sample(session)]
    began = sampled = time.monotonic()
    count = 0
    while time.monotonic() < began + 60 * minutes:
        count += 1
        trials += 8
        if count % max(1, round(2 * per_second)) == 0:
            delays.append(_delay(page, say, trials))
        else:
            say(_measured(trials))
        if time.monotonic() > sampled + _SAMPLES_S:
            samples.append(_sample(session))
            sampled = time.monotonic()
        page.wait_for_timeout(1000 / per_second)
    tasks = [round(task[1]) for task in page.evaluate("longTasks")]
    seconds = time.monotonic() - began
    console.print(f"{count} events in {seconds:.0f} s, {trials:,} trials in the end")
    console.print(f"an event is seen after {_spread(delays)} s (median, 95 %, worst)")
    console.print(f"tasks of more than 50 ms: {len(tasks)} {sorted(tasks)[-5:]}")
    table = Table(box=None)
    for name in ("", "heap, MB", "DOM nodes", "listeners"):
        table.add_column(name, justify="right")
    for name, sample in (
        ("begin", samples[0]),
        ("half", samples[len(samples) // 2]),
        ("end", samples[-1]),
    ):
        table.add_row(name, f"{sample[0]:.1f}", f"{sample[1]:.0f}", f"{sample[2]:.0f}")
    console.print(table)


def _measured(trials: int) -> TrialsMeasured:
    return TrialsMeasured(trials, None, 40 + 60 * 1e4 / (1e4 + trials), 600.0, "conv2d", failed=1)


def _delay(page: Any, say: Callable[[TrialsMeasured], None], trials: int) -> float:
    """Seconds from the event's being said to the frame that shows its count of trials."""
    written = f"{trials:,}".replace(",", "\u202f")
    page.evaluate("(text) => { window.seen = whenSeen(text); }", written)
    said = time.time()
    say(_measured(trials))
    return float(page.evaluate("window.seen")) - said


def _sample(session: Any) -> tuple[float, float, float]:
    """Heap after a collection in MB, nodes, listeners."""
    session.send("HeapProfiler.collectGarbage")
    told = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return told["JSHeapUsedSize"] / 1e6, told["Nodes"], told["JSEventListeners"]


def _spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    picked = (statistics.median(ordered), ordered[int(0.95 * (len(ordered) - 1))], ordered[-1])
    return " / ".join(f"{value:.2f}" for value in picked)
