"""The event stream of the whole farm, and the one reader behind all watchers."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from farrier.options import CompileOptions
from farrier.progress import StageStarted, Warned
from farrier_server import hub as hub_module
from farrier_server.hub import Hub

OPTIONS = CompileOptions(verify=False, target="rpi4")


@pytest.fixture
def submit(service):
    model = service.farm.blobs.put(b"model")
    return lambda name="": service.farm.jobs.submit(model, OPTIONS, name=name)


def data(lines, count: int) -> list[dict]:
    """The next events of a stream, with their ids."""
    collected, fields = [], {}
    for line in lines:
        name, _, value = line.partition(": ")
        fields[name] = value
        if not line and "data" in fields:
            collected.append({"id": fields["id"], **json.loads(fields["data"])})
            assert fields["event"] == collected[-1]["kind"]
            fields = {}
        if len(collected) == count:
            return collected
    raise AssertionError("the stream ended")


def test_the_farm_s_events_tell_of_each_job_and_go_on_after_a_break(service, submit):
    http = service.http()
    submit("before")
    with http.stream("GET", "/v1/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        job = submit("<b>")
        (queued,) = data(lines, 1)
        assert (queued["kind"], queued["job"], queued["name"]) == ("job", job.id, "<b>")
        assert (queued["state"], queued["attempt"]) == ("queued", 0)
        service.farm.news.warn("broker", "it is warm")
        (warning,) = data(lines, 1)
        assert (warning["role"], warning["message"]) == ("broker", "it is warm")
    service.farm.jobs.cancel(job.id)
    with http.stream("GET", "/v1/events", headers={"Last-Event-ID": queued["id"]}) as answer:
        again, cancelled = data(answer.iter_lines(), 2)
    assert again == warning
    assert (cancelled["job"], cancelled["state"]) == (job.id, "cancelled")
    with http.stream("GET", "/v1/events", headers={"Last-Event-ID": "0-0"}) as answer:
        assert [event["kind"] for event in data(answer.iter_lines(), 4)] == [
            "job",
            "job",
            "warning",
            "job",
        ]
    assert http.get("/v1/events", headers={"Last-Event-ID": "x"}).status_code == 400
    with service.client() as client:
        event = next(client.events(last_id=queued["id"]))
    assert (event.id, event.kind) == (warning["id"], "warning")


def test_progress_of_a_job_is_no_event_of_the_farm(service, submit):
    job = submit()
    lease = service.farm.jobs.lease("w", 1)
    service.farm.jobs.say(lease, 1, StageStarted("import"))
    kept = service.farm.client.command("XLEN", "farrier:events")
    assert kept == 2  # queued, running
    assert len(service.farm.events.read(job.id)) == 3


class Counting:
    """The farm's events, and how often they are asked for."""

    def __init__(self, events) -> None:
        self.events, self.reads = events, 0

    def newest(self, stream):
        return self.events.newest(stream)

    def follow(self, positions, wait_s, limit=500):
        self.reads += wait_s > 0
        return self.events.follow(positions, wait_s, limit)


def test_watchers_share_one_reader_and_each_gets_all_events_once(service, submit, monkeypatch):
    """The watchers include a late one, and a slow one whose events do not wait for it."""
    monkeypatch.setattr(hub_module, "QUEUED", 40)
    monkeypatch.setattr(hub_module, "PAGE", 30)
    jobs = [submit() for _ in range(3)]
    leases = [service.farm.jobs.lease("w", 1) for _ in jobs]
    events = Counting(service.farm.events)

    async def watch(hub: Hub, job_id: str, pause_s: float) -> list[int]:
        said: list[int] = []
        async for arrived in hub.watch(job_id, "", 30):
            said += [int(e.data["message"]) for e in arrived if e.data["kind"] == "warned"]
            if said and said[-1] == 299:
                return said
            await asyncio.sleep(pause_s)
        return said

    async def run() -> list[list[int]]:
        hub = Hub(events, asyncio.Event())
        watching = [asyncio.create_task(watch(hub, job.id, 0)) for job in jobs for _ in range(30)]
        watching += [asyncio.create_task(watch(hub, job.id, 0.5)) for job in jobs]
        for number in range(300):
            if number == 150:
                watching += [asyncio.create_task(watch(hub, job.id, 0)) for job in jobs]
            for lease in leases:
                say = service.farm.jobs.say
                await asyncio.to_thread(say, lease, number + 1, Warned(str(number)))
        received = await asyncio.gather(*watching)
        assert hub._watchers == hub._positions == {}  # type: ignore[comparison-overlap]
        return received

    for said in asyncio.run(asyncio.wait_for(run(), 60)):
        assert said == list(range(300))
    assert events.reads <= 3 * 300 + 50  # At most one read a change, however many watch.


def test_streams_end_where_redis_is_away_or_the_job_is_deleted(
    installation, start_service, monkeypatch
):
    from farrier_server.api import events

    monkeypatch.setattr(events, "KEEPALIVE_S", 0.3)
    service = start_service(installation.settings)
    model = service.farm.blobs.put(b"model")
    job = service.farm.jobs.submit(model, OPTIONS)
    http, other = service.http(), service.http()
    with http.stream("GET", f"/v1/jobs/{job.id}/events") as of_job:
        lines = of_job.iter_lines()
        data(lines, 1)
        service.farm.client.command("DEL", f"farrier:job:item:{job.id}")
        list(lines)
    with contextlib.ExitStack() as watching:
        farm = watching.enter_context(other.stream("GET", "/v1/events"))
        lines = farm.iter_lines()
        assert next(lines).startswith("retry")
        installation.kill_redis()
        list(lines)
    assert http.get("/v1/events").status_code == 503
    installation.start_redis()
