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
        description="The `next` of the previous page.",
    ),
]
DeviceClass = Annotated[
    str | None,
    Query(
        max_length=200,
        description="Return only the records of this device class; if empty, the records without a "
        "class.",
    ),
]


class RuleView(BaseModel):
    """The records of the schedules that one scheduling rule produced, on one device class."""

    rule: str = Field(
        description="The name of the rule that produced the schedules, in any of its versions."
    )
    records: int
    tasks: int = Field(description="The number of distinct kernels.")
    failed: int = Field(description="The number of records of failed trials, which have no time.")
    oldest: float = Field(description="The creation time of the oldest record in Unix seconds.")
    newest: float = Field(description="The creation time of the newest record in Unix seconds.")

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

    device_class: str = Field(
        description="The id of the device class; empty for records that do not name one."
    )
    name: str = Field(description="The name of the device class for people.")
    records: int
    tasks: int = Field(description="The number of distinct kernels.")
    oldest: float = Field(description="The creation time of the oldest record in Unix seconds.")
    newest: float = Field(description="The creation time of the newest record in Unix seconds.")
    rules: list[RuleView] = Field(description="The same numbers for each rule, sorted by name.")

    @classmethod
    def of(cls, farm: Farm, summary: RecordClass) -> RecordClassView:
        device_class = (
            farm.devices.device_class(summary.device_class) if summary.device_class else None
        )
        name = summary.device_class if device_class is None else called(device_class.to_text())
        return cls(
            device_class=summary.device_class,
            name=name or "unknown devices",
            records=summary.records,
            tasks=summary.tasks,
            oldest=summary.oldest,
            newest=summary.newest,
            rules=[RuleView.of(rule) for rule in summary.rules],
        )


class RecordsView(BaseModel):
    """The tuning records of all users together, or a user's private ones, by device class."""

    count: int = Field(description="The number of records of all classes.")
    classes: list[RecordClassView] = Field(
        description="The records of each device class, sorted by id."
    )
    model: dict[str, Any] | None = Field(
        description="The version of the cost model in use, which was trained on shared "
        "records: its `version`, its creation time `created`, and the number of "
        "`records` on which it was trained. Null without a trained model."
    )


class ScheduleView(BaseModel):
    """A schedule of a task, with its latest tuning record."""

    device_class: str = Field(
        description="The id of the device class; empty if the record does not name one."
    )
    fingerprint: str = Field(description="The fingerprint of the target.")
    threads: int
    rule: str
    version: int = Field(description="The version of the rule.")
    context: str = Field(
        description="The context of the measurement: on the kernel `alone`, or in the `model`. "
        "Times of the two contexts are not comparable."
    )
    decisions: dict[str, int]
    us: float = Field(description="The time of an undisturbed call in microseconds.")
    created: float = Field(description="The creation time of the record in Unix seconds.")

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
        description="The schedules by device class. For each class, schedules measured in a "
        "model come first; within a context, the fastest come first."
    )


class RecordLinesPage(BaseModel):
    """A page of tuning records, as they are stored."""

    records: list[dict[str, Any]]
    next: str = Field(description="The value of `after` for the next page; empty on the last page.")


class ImportView(BaseModel):
    """The number of records that an import added or skipped."""

    added: int = Field(description="The number of new records.")
    duplicates: int = Field(
        alias="known", description="The number of records that were stored already."
    )


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

    device_class: str | None = Field(
        default=None, max_length=200, description="Remove records of this device class."
    )
    before: Annotated[float, Field(ge=0, le=_LATEST)] | None = Field(
        default=None,
        description="Remove records that were created before this time, in Unix seconds.",
    )
    failed: bool = Field(
        default=False,
        strict=True,
        description="Remove records of failed trials, which have no time.",
    )
    rules: Annotated[list[RuleVersion], Field(max_length=1000)] | None = Field(
        default=None,
        description="Remove records of all rules and versions except these, such as those that "
        "the caller's installation has.",
    )
    keep: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = Field(
        default=None,
        description="Keep this number of the fastest schedules of each task, rule and device "
        "class, counted separately for schedules measured alone and in the model.",
    )
    dry_run: bool = Field(
        default=False, strict=True, description="True to count the records without removing them."
    )
    after: str = Field(
        default="",
        max_length=40,
        pattern=ENTRY_ID,
        description="The `next` of the previous step.",
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

    device: str = Field(
        min_length=1,
        max_length=100,
        description="The id of the device, which need not be registered any longer.",
    )
    since: Annotated[float, Field(ge=0, le=_LATEST)] | None = Field(
        default=None,
        description="Remove only records that were created since this time, in Unix seconds.",
    )
    after: str = Field(default="", max_length=200, description="The `next` of the previous step.")


class PruneView(BaseModel):
    """The result of one step of a removal."""

    pruned: int = Field(
        description="The number of records removed or, with `dry_run`, that would be removed."
    )
    next: str = Field(
        description="The value of `after` for the next step; empty after the last step."
    )


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
    task: Annotated[str, Query(max_length=1000, description="The key of the task.")],
    limit: Annotated[
        int,
        Query(
            ge=1,
            le=1000,
            description="The maximum number of schedules for each device class and context.",
        ),
    ] = 10,
) -> FastestView:
    """Return the fastest schedules of a task on each device class; an empty list for a task without
    records."""
    schedules = fastest(records.of_task(task), limit)
    return FastestView(schedules=[ScheduleView.of(schedule) for schedule in schedules])


@router.get("/export", response_model=RecordLinesPage, responses=documented(400, 503))
def export_records(
    records: RecordsDep,
    device_class: DeviceClass = None,
    task: Annotated[
        str | None, Query(max_length=1000, description="Return only the records of this task.")
    ] = None,
    since: Annotated[
        float | None,
        Query(
            ge=0,
            le=_LATEST,
            description="Return only the records that were created since this time, in Unix "
            "seconds.",
        ),
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
        int,
        Query(
            ge=1,
            le=MOST,
            description="The number of the body's first line in its file, for error messages.",
        ),
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
        raise UsageError("`after` is not the `next` of a page", hint="begin without `after`")
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
