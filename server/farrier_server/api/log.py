"""The route for the log of a job: its events, except trials, as sentences."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from farrier_farm.jobs.events import StoredEvent
from farrier_server.access import JobId
from farrier_server.api.trials import After, Order
from farrier_server.context import FarmDep
from farrier_server.finite import finite
from farrier_server.problems import Problem, documented, from_stored

router = APIRouter(prefix="/v1/jobs", tags=["events"])


class LogLine(BaseModel):
    """An event of a job as a sentence, with the fields of the event."""

    id: str = Field(
        description="The id of the event, as in the stream of events; `after` takes one."
    )
    time: float = Field(description="The time of the event in Unix seconds.")
    kind: str = Field(
        description="The kind of the event, as in the stream of events. The log has no events of "
        "the kind trials-measured."
    )
    text: str = Field(
        description="The event as a sentence. Names from the model in it may be any text."
    )
    state: str | None = Field(description="The new state of the job.")
    attempt: int | None = Field(
        description="For a change of state, the number of attempts at the job so far."
    )
    reason: str | None = Field(
        description="The reason why the job went back to the queue, or does not run yet."
    )
    error: Problem | None = Field(description="The reason why the job failed.")
    stage: str | None = Field(description="The stage that began or ended.")
    seconds: float | None = Field(description="The duration of the stage in seconds.")

    @classmethod
    def of(cls, event: StoredEvent) -> LogLine:
        data = finite(event.data)
        error = data.get("error")
        optional = ("state", "attempt", "reason", "stage", "seconds")
        return cls(
            id=event.id,
            time=int(event.id.partition("-")[0]) / 1000,
            kind=data["kind"],
            text=_sentence(data),
            error=None if error is None else from_stored(error),
            **{name: data.get(name) for name in optional},
        )


class LogPage(BaseModel):
    """A page of a job's log."""

    lines: list[LogLine]
    next: str = Field(description="The value of `after` for the next page; empty on the last page.")


@router.get("/{job_id}/log", responses=documented(400, 403, 404, 503))
def get_log(
    job_id: JobId,
    farm: FarmDep,
    after: After = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    order: Order = "oldest",
) -> LogPage:
    """Return the events of the job as sentences: its states, stages, warnings and results, without
    trials. About FARRIER_EVENTS_KEPT lines are kept, until some time after the job's end. To follow
    a job, pass the id of the last line as `after`."""
    newest = order == "newest"
    events, following = farm.events.log(job_id, after=after, limit=limit, newest_first=newest)
    return LogPage(lines=[LogLine.of(event) for event in events], next=following)


def _sentence(data: Mapping[str, Any]) -> str:
    """Return an event as a sentence. If this version of the server has no sentence for the kind of
    event, return the event's fields as JSON."""
    try:
        return _SENTENCES[data["kind"]](data)
    except (KeyError, TypeError, ValueError):
        fields = {name: value for name, value in data.items() if name != "kind"}
        return json.dumps(fields, ensure_ascii=False) if fields else str(data["kind"])


def _state(data: Mapping[str, Any]) -> str:
    error, reason = data.get("error"), data.get("reason")
    text = str(data["state"])
    if data["state"] == "running":
        text = f"running, attempt {data['attempt']}"
    if error is not None:
        text = f"{text}: {error['message']}"
    return f"{text}: {reason}" if reason else text


def _finished(data: Mapping[str, Any]) -> str:
    summary = f": {data['summary']}" if data.get("summary") else ""
    return f"{data['stage']} took {data['seconds']:.1f} s{summary}"


def _sizes(data: Mapping[str, Any]) -> str:
    suffix = f"; taken for granted: {', '.join(data['preconditions'])}"
    return f"sizes stay open: {', '.join(data['dims'])}{suffix if data['preconditions'] else ''}"


def _verified(data: Mapping[str, Any]) -> str:
    untuned = data.get("untuned_ms")
    beside = "" if untuned is None else f", untuned {untuned:.3f} ms"
    where = f"{data['device']}, which is emulated" if data.get("emulated") else data["device"]
    off = data["max_error"]  # Null stands for an error without a bound.
    error = "error inf" if off is None else f"error {off:.1e}"
    text = f"verified on {where}: {error}"
    if data.get("differs_from"):
        text = f"run on {where}, not verified: it differs from {data['differs_from']}, {error}"
    if data.get("emulated"):
        return text
    return f"{text} of the output's range, {data['latency_ms']:.3f} ms{beside}"


def _raced(data: Mapping[str, Any]) -> str:
    engine = f"{data['engine']} {data['version']}"
    if data.get("ratio") is None:
        return f"{engine} on {data['device']}: {data['note']}"
    return f"{engine} on {data['device']}: ours takes {data['ratio']:.2f} of its time"


def _version(data: Mapping[str, Any]) -> str:
    median, untuned = data["median_ms"], data["untuned_ms"]
    took = "" if median is None else f": {median:.3f} ms"
    beside = "" if untuned in (None, median) else f", untuned {untuned:.3f} ms"
    return f"version {data['version']} of the artifact{took}{beside}"


def _spent(data: Mapping[str, Any]) -> str:
    each = ", ".join(f"{phase} {seconds:.0f} s" for phase, seconds in data["phases"].items())
    return f"tuning is over: {each}" if each else "tuning is over"


_SENTENCES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "state": _state,
    "stage-started": lambda data: f"{data['stage']} begins",
    "stage-finished": _finished,
    "sizes-settled": _sizes,
    "tasks-found": lambda data: f"{data['tasks']} distinct kernels in {data['kernels']} calls",
    "tuning-started": lambda data: f"tuning begins, its cost model is {data['cost_model']}",
    "variants-compared": lambda data: (
        f"{data['variants']} variants ran in turns: {data['changed']} {data['what']} changed"
    ),
    "time-spent": _spent,
    "verified": _verified,
    "raced": _raced,
    "version-added": _version,
    "rolled-back": lambda data: f"rolled back to version {data['version']} of the artifact",
    "warned": lambda data: str(data["message"]),
}
