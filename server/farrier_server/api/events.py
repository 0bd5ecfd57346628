"""Events: what happens to a job, as server-sent events (the WHATWG HTML standard, section 9.2)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from farrier.errors import ServiceError
from farrier_farm.events import StoredEvent
from farrier_farm.farm import Farm
from farrier_server.api.jobs import JobId
from farrier_server.context import Context, ContextDep
from farrier_server.finite import finite
from farrier_server.problems import documented, from_stored

# Looking is one short command on a pooled connection; a watcher holds no thread between looks.
LOOK_EVERY_S = 0.2
KEEPALIVE_S = 15.0
RETRY_MS = 1000

router = APIRouter(prefix="/v1/jobs", tags=["events"])


class EventStream(StreamingResponse):
    """Named for the OpenAPI page."""

    media_type = "text/event-stream"


@router.get("/{job_id}/events", response_class=EventStream, responses=documented(400, 404, 503))
async def watch_job(
    job_id: JobId,
    context: ContextDep,
    last_event_id: Annotated[
        str, Header(max_length=100, description="id of the last event seen; goes on after it")
    ] = "",
) -> EventStream:
    """Everything that happened to the job and happens from now on; ends after its final state.

    Each event's `data` is a JSON object whose `kind` is that of a progress event (`stage-started`,
    `trials-measured`, …) or `state`. A comment every 15 s keeps idle connections open. A stream may
    end before the job does, when the server restarts: connect again with `Last-Event-ID`.
    """
    # The first look decides between a stream and a problem: unknown job, malformed id, no Redis.
    first = await run_in_threadpool(_first_look, context.farm, job_id, last_event_id)
    return EventStream(
        _stream(context, job_id, last_event_id, first),
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _first_look(farm: Farm, job_id: str, after: str) -> list[StoredEvent]:
    """What there is to say at once. Events are forgotten some time after a job's end, and a watcher
    may have seen the last: the final state is said again then, so that every stream has its end."""
    events = farm.events.read(job_id, after)
    if not events:
        job = farm.jobs.get(job_id)
        if job.state.final:
            data = {"kind": "state", "state": job.state, "attempt": job.attempts}
            if job.error is not None:
                data["error"] = job.error
            return [StoredEvent(after or "0-1", data)]
    return events


async def _stream(
    context: Context, job_id: str, after: str, events: list[StoredEvent]
) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    spoken = time.monotonic()
    while True:
        for event in events:
            yield _formatted(event)
            if event.last:
                return
            after, spoken = event.id, time.monotonic()
        if time.monotonic() - spoken >= KEEPALIVE_S:
            yield ": keepalive\n\n"
            spoken = time.monotonic()
        try:
            async with asyncio.timeout(LOOK_EVERY_S):
                await context.stopping.wait()
            return
        except TimeoutError:
            pass
        try:
            events = await run_in_threadpool(context.farm.events.read, job_id, after)
        except ServiceError:
            return  # the watcher connects again and is told why


def _formatted(event: StoredEvent) -> str:
    data = finite(event.data)
    if data.get("error") is not None:
        data["error"] = from_stored(data["error"]).model_dump()
    # ASCII without line breaks: nothing in a name can end the event's line.
    return f"id: {event.id}\nevent: {data['kind']}\ndata: {json.dumps(data)}\n\n"
