"""Routes for the farm's tuning records: counts by device class, export, import and removal."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from farrier.errors import UsageError
from farrier.records import KnownSchedule, Pruning, RuleId, RuleSummary, Selection, fastest
from farrier.targets import called
from farrier_farm.farm import Farm
from farrier_farm.records.records import RecordClass
from farrier_server.api.private import RecordsDep
from farrier_server.api.trials import ENTRY_ID
from farrier_server.bounds import MOST
from farrier_server.context import FarmDep
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/records", tags=["records"])

_LATEST = 1e11  # Unix seconds
After = Annotated[
    str,
    Query(
        max_length=40,
        pattern=ENTRY_ID,
        description="`next` of the page before",
    ),
]
DeviceClass = Annotated[
    str | None, Query(max_length=200, description="only those of this class; empty: of none")
]


class RuleView(BaseModel):
    """The records of the schedules that one scheduling rule produced, on one device class."""

    rule: str = Field(description="that made the schedules, in whatever version")
    records: int
    tasks: int = Field(description="distinct kernels")
    failed: int = Field(description="records without a time")
    oldest: float = Field(description="Unix seconds at which the oldest was made")
    newest: float = Field(description="Unix seconds at which the newest was made")

    @classmethod
    def of(cls, summary: RuleSummary) -> RuleView:
        return cls(
            rule=summary.rule,
            records=summary.records,
            tasks=summary.tasks,
            failed=summary.failed,
            oldest=summary.oldest,
            newest=summary.newest,
        )


class RecordClassView(BaseModel):
    """The records of one device class."""

    device_class: str = Field(description="its id; empty for records that tell none")
    name: str = Field(description="for people")
    records: int
    tasks: int = Field(description="distinct kernels")
    oldest: float = Field(description="Unix seconds at which the oldest was made")
    newest: float = Field(description="Unix seconds at which the newest was made")
    rules: list[RuleView] = Field(description="the same by rule, by name")

    @classmethod
    def of(cls, farm: Farm, summary: RecordClass) -> RecordClassView:
        device_class = (
            farm.devices.device_class(summary.device_class) if summary.device_class else None
        )
        name = summary.device_class if device_class is None else called(device_class.to_text())
        return cls(
            device_class=summary.device_class,
            name=name or "devices that the records do not tell",
            records=summary.records,
            tasks=summary.tasks,
            oldest=summary.oldest,
            newest=summary.newest,
            rules=[RuleView.of(rule) for rule in summary.rules],
        )


class RecordsView(BaseModel):
    """The tuning records of all users together, or a user's private ones, by device class."""

    count: int = Field(description="records, of whatever class")
    classes: list[RecordClassView] = Field(description="by id")
    model: dict[str, Any] | None = Field(
        description="the version of the cost model that is in use, which shared records trained: "
        "its `version`, when it was `created`, and how many `records` taught it; null without one"
    )


class ScheduleView(BaseModel):
    """A schedule of a task, with its latest tuning record."""

    device_class: str = Field(description="empty where the record tells none")
    fingerprint: str = Field(description="of the target")
    threads: int
    rule: str
    version: int = Field(description="of the rule")
    context: str = Field(description="alone, or in the model: such times do not compare")
    decisions: dict[str, int]
    us: float = Field(description="of an undisturbed call")
    created: float = Field(description="Unix seconds")

    @classmethod
    def of(cls, schedule: KnownSchedule) -> ScheduleView:
        return cls(
            device_class=schedule.device_class,
            fingerprint=schedule.fingerprint,
            threads=schedule.threads,
            rule=schedule.rule,
            version=schedule.version,
            context=schedule.context,
            decisions=dict(schedule.decisions),
            us=schedule.us,
            created=schedule.created,
        )


class FastestView(BaseModel):
    """The fastest schedules of a task."""

    schedules: list[ScheduleView] = Field(
        description="by device class; of each those in a model first, the fastest first"
    )


class RecordLinesPage(BaseModel):
    """A page of tuning records, as they are stored."""

    records: list[dict[str, Any]]
    next: str = Field(description="`after` of the next page; empty on the last one")


class ImportView(BaseModel):
    """The number of records that an import added or skipped."""

    added: int = Field(description="records that are new")
    duplicates: int = Field(alias="known", description="records that were there already")


class RuleVersion(BaseModel):
    """A version of a scheduling rule."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=200)
    version: int = Field(ge=-MOST, le=MOST, strict=True)


class PruneRequest(BaseModel):
    """The conditions for the removal of records: a record is removed if it meets all conditions.
    Null and false set no condition; at least one condition is required."""

    model_config = ConfigDict(
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra={"examples": [{"failed": True, "dry_run": True}]},
    )

    device_class: str | None = Field(default=None, max_length=200, description="of this class")
    before: Annotated[float, Field(ge=0, le=_LATEST)] | None = Field(
        default=None, description="made before, in Unix seconds"
    )
    failed: bool = Field(default=False, strict=True, description="without a time")
    rules: Annotated[list[RuleVersion], Field(max_length=1000)] | None = Field(
        default=None, description="of none of these, as whoever asks has them"
    )
    keep: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = Field(
        default=None,
        description="but the fastest schedules, so many of each task, rule and device class, those "
        "measured alone and those in the model",
    )
    dry_run: bool = Field(default=False, strict=True, description="count, and remove nothing")
    after: str = Field(
        default="",
        max_length=40,
        pattern=ENTRY_ID,
        description="`next` of the step before",
    )

    def pruning(self) -> Pruning:
        """Return the conditions as a `Pruning`. Raises UsageError if no condition is set."""
        selection = Selection(
            device_class=self.device_class,
            before=self.before,
            failed=self.failed,
            rules=None
            if self.rules is None
            else frozenset(RuleId(rule.name, rule.version) for rule in self.rules),
        )
        return Pruning(selection, self.keep)


class DropRequest(BaseModel):
    """A request to remove all records that a device has measured, of all users, including private
    records."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    device: str = Field(min_length=1, max_length=100, description="its id, known still or not")
    since: Annotated[float, Field(ge=0, le=_LATEST)] | None = Field(
        default=None, description="only those made since then, in Unix seconds"
    )
    after: str = Field(default="", max_length=200, description="`next` of the step before")


class PruneView(BaseModel):
    """The result of one step of a removal."""

    pruned: int = Field(description="records; with `dry_run`, those that would go")
    next: str = Field(description="`after` of the next step; empty where all is done")


@router.get("", responses=documented(503))
def get_records(farm: FarmDep, records: RecordsDep) -> RecordsView:
    """Return the number of tuning records by device class and scheduling rule. Records are kept
    until they are pruned: a job that tunes the same kind of kernel for the same device class starts
    from the stored records."""
    classes = [RecordClassView.of(farm, summary) for summary in records.classes()]
    return RecordsView(count=records.count(), classes=classes, model=_model(farm))


def _model(farm: Farm) -> dict[str, Any] | None:
    version = farm.cost_models.in_use()
    if version is None:
        return None
    records = version.outcome.records
    return {"version": version.number, "created": version.created, "records": records}


@router.get("/fastest", responses=documented(400, 503))
def get_fastest(
    records: RecordsDep,
    task: Annotated[str, Query(max_length=1000, description="key of the task")],
    limit: Annotated[int, Query(ge=1, le=1000, description="of each class and context")] = 10,
) -> FastestView:
    """Return the fastest schedules of a task on each device class; an empty list for a task without
    records."""
    schedules = fastest(records.of_task(task), limit)
    return FastestView(schedules=[ScheduleView.of(schedule) for schedule in schedules])


@router.get("/export", response_model=RecordLinesPage, responses=documented(400, 503))
def export_records(
    records: RecordsDep,
    device_class: DeviceClass = None,
    task: Annotated[str | None, Query(max_length=1000, description="only of this task")] = None,
    since: Annotated[
        float | None, Query(ge=0, le=_LATEST, description="only those made since, in Unix seconds")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
    after: After = "",
) -> Response:
    """Return tuning records, in the order in which they were added. Each page examines `limit`
    records and returns only the records that match the filter, so a page before the last may have
    fewer than `limit` records, or none."""
    selection = Selection(device_class=device_class, task=task, since=since)
    page = records.page(selection, after=after, limit=limit)
    lines = ",".join(line for line in page.lines if _is_object(line))
    text = f'{{"records":[{lines}],"next":{json.dumps(page.next)}}}'
    # The records are returned as they are stored.
    return Response(text, media_type="application/json")


@router.post(
    "/import",
    responses=documented(400, 413, 503, 507),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        }
    },
)
async def import_records(
    request: Request,
    records: RecordsDep,
    first: Annotated[
        int, Query(ge=1, le=MOST, description="number of the body's first line in its file")
    ] = 1,
) -> ImportView:
    """Add the records of the request body, one per line. A record that is already stored is not
    added again, so the same body may be sent twice. If a line is not a valid record, the answer is
    400 and names the line: the lines before it were added, and the lines after it were not read."""
    lines = (await request.body()).split(b"\n")
    added, duplicates = await run_in_threadpool(records.load, lines, first)
    return ImportView(added=added, known=duplicates)


@router.post("/prune", responses=documented(400, 503, 507))
def prune_records(body: PruneRequest, farm: FarmDep, records: RecordsDep) -> PruneView:
    """Remove the selected records permanently, in steps: repeat the request with `after` until
    `next` is empty. A removal that was interrupted can be started again, and removes the remaining
    records."""
    pruning, after = body.pruning(), body.after
    done = farm.record_pruning.step(records, pruning, after=after, is_dry=body.dry_run)
    return PruneView(pruned=done.records, next=done.next)


@router.post("/drop", responses=documented(400, 503, 507))
def drop_records(body: DropRequest, farm: FarmDep) -> PruneView:
    """Permanently remove all records that a device has measured, in steps: repeat the request with
    `after` until `next` is empty. The cost model is not changed: if it was trained on these
    records, roll it back separately."""
    place = body.after.partition(" ")[0]
    if not re.fullmatch(ENTRY_ID, place):
        raise UsageError("`after` is no `next` of a step", hint="begin without it")
    pruning = Pruning(Selection(device=body.device, since=body.since))
    done = farm.record_pruning.drop(farm.records_of_owner, pruning, after=body.after)
    return PruneView(pruned=done.records, next=done.next)


def _is_object(line: str) -> bool:
    """Return whether a stored line is a JSON object; any other line would make the page invalid
    JSON."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
