"""Routes that stream the events of a job or of the whole farm, as server-sent events (the WHATWG
HTML standard, section 9.2)."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from farrier.errors import ServiceError
from farrier_farm.access.users import DEFAULT
from farrier_farm.farm import Farm
from farrier_farm.jobs.events import FARM, StoredEvent, check_id
from farrier_server.access import Access, AccessDep, JobDep, ViewerDep
from farrier_server.context import Context, ContextDep
from farrier_server.finite import finite
from farrier_server.problems import documented, from_stored
from farrier_server.viewer import Viewer

KEEPALIVE_S = 15.0
RETRY_MS = 1000

router = APIRouter(prefix="/v1", tags=["events"])
LastEventId = Annotated[
    str,
    Header(
        max_length=100,
        description="The id of the last event that the client received. The stream continues after "
        "it.",
    ),
]
AfterEvent = Annotated[
    str,
    Query(
        max_length=100,
        description="The same as the header Last-Event-ID, for clients that cannot set headers. "
        "The header takes precedence.",
    ),
]


class EventStream(StreamingResponse):
    """A streaming response that has its own media type in the OpenAPI document."""

    media_type = "text/event-stream"


@router.get(
    "/jobs/{job_id}/events",
    response_class=EventStream,
    responses=documented(400, 403, 404, 503),
)
async def watch_job(
    job: JobDep,
    context: ContextDep,
    access: AccessDep,
    viewer: ViewerDep,
    last_event_id: LastEventId = "",
    after: AfterEvent = "",
) -> EventStream:
    """Stream the past and future events of a job; the stream ends after the job's final state.

    Each event's `data` is a JSON object. Its `kind` is `state` for a change of the job's state, or
    a progress event (`stage-started`, `trials-measured`, …). A comment every 15 s keeps idle
    connections open. If the server restarts, the stream ends before the job does: connect again
    with `Last-Event-ID`.
    """
    last_event_id = last_event_id or after
    # The first read decides between a stream and a problem document: the job may be unknown, the id
    # malformed, or Redis away.
    first = await run_in_threadpool(_first_look, context.farm, job.id, last_event_id)
    whole = await run_in_threadpool(access.whole, job)
    may_go_on = functools.partial(access.still_reads, viewer, whole)
    return _streamed(_of_job(context, job.id, last_event_id, first, may_go_on))


@router.get("/events", response_class=EventStream, responses=documented(400, 503))
async def watch_farm(
    context: ContextDep,
    access: AccessDep,
    viewer: ViewerDep,
    last_event_id: LastEventId = "",
    after: AfterEvent = "",
) -> EventStream:
    """Stream the events of the farm from now on, without end: state changes of the jobs that the
    caller may see, devices that connect and disconnect and, for operators, warnings of the farm's
    server processes.

    Each event's `data` is a JSON object with a `kind`: `job`, `device` or `warning`. Open the
    stream before you request the lists of jobs and devices, so that no change between the two
    requests is missed. After an interruption, `Last-Event-ID` continues at the next event, and
    `0-0` starts with the oldest stored event; about 10,000 events are kept.
    """
    last_event_id = last_event_id or after
    check_id(last_event_id)
    newest = await run_in_threadpool(context.farm.events.newest, FARM)
    return _streamed(_of_farm(context, access, viewer, last_event_id or newest))


def _streamed(texts: AsyncIterator[str]) -> EventStream:
    return EventStream(texts, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


def _first_look(farm: Farm, job_id: str, after: str) -> list[StoredEvent]:
    """Return the job's stored events after the id `after`. If there are none and the job has ended,
    return an event with the final state, so that every stream ends: the stored events may have
    expired, or the watcher may have received all of them already."""
    events = farm.events.read(job_id, after)
    if not events:
        job = farm.jobs.get(job_id)
        if job.state.final:
            data = {"kind": "state", "state": job.state, "attempt": job.attempts}
            if job.error is not None:
                data["error"] = job.error
            return [StoredEvent(after or "0-1", data)]
    return events


async def _of_job(
    context: Context,
    job_id: str,
    after: str,
    first: list[StoredEvent],
    may_go_on: Callable[[], bool],
) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    for event in first:
        yield _formatted(event)
        if event.last:
            return
        after = event.id
    async for events in context.hub.watch(job_id, after, KEEPALIVE_S):
        if not may_go_on():
            return  # The viewer's next request is refused with the reason.
        for event in events:
            yield _formatted(event)
            if event.last:
                return
        if not events:
            yield ": keepalive\n\n"
            if not await _is_known(context.farm, job_id):
                return  # The watcher's next request fails with the reason.


async def _is_known(farm: Farm, job_id: str) -> bool:
    """Return whether the job exists and is not deleted. Return False if Redis is unavailable."""
    try:
        return await asyncio.to_thread(farm.jobs.leases_of(job_id).state, job_id) is not None
    except ServiceError:
        return False


async def _of_farm(
    context: Context, access: Access, viewer: Viewer, after: str
) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    async for events in context.hub.watch(FARM, after, KEEPALIVE_S):
        now = access.now(viewer)
        if now is None:
            return
        for event in events:
            if (data := shown_to(now, event.data)) is not None:
                yield _formatted(StoredEvent(event.id, data))
        if not events:
            yield ": keepalive\n\n"


def shown_to(viewer: Viewer, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a farm event that the viewer may see, or None if the viewer may see
    nothing of the event. An event of an older version does not state whether its job is private, so
    the job counts as private."""
    if data["kind"] == "job":
        owner, private = data.get("owner", DEFAULT), data.get("private", True)
        if not viewer.sees_of(owner, private):
            return None
        return data if viewer.reads_of(owner, private) else _without(data, "error")
    if viewer.is_operator:
        return data
    return _without(data, "reason", "job", "batch") if data["kind"] == "device" else None


def _without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in names}


def _formatted(event: StoredEvent) -> str:
    data = finite(event.data)
    if data.get("error") is not None:
        data["error"] = from_stored(data["error"]).model_dump()
    # ASCII without line breaks: nothing in a name can end the event's line.
    return f"id: {event.id}\nevent: {data['kind']}\ndata: {json.dumps(data)}\n\n"
