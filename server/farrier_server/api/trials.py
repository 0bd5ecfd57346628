"""Routes for the tasks and trials of a job, and for the tuning records of these trials, in
pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, Field

from farrier_device.measurement import fast_quartile_mean
from farrier_farm.jobs.trials import JobTask, Trial, TrialFilter, TrialOrder
from farrier_farm.records.choices import Choices, choices
from farrier_server.access import JobDep
from farrier_server.bounds import MOST
from farrier_server.context import FarmDep
from farrier_server.finite import finite
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/jobs", tags=["trials"])

# The id of a log entry; empty stands for the position before the first.
ENTRY_ID = r"^(\d{1,18}-\d{1,18})?$"
After = Annotated[
    str,
    Query(
        max_length=40,
        pattern=ENTRY_ID,
        description="`next` of the page before, or the id of a trial: what came after it",
    ),
]
TaskKey = Annotated[str, Query(max_length=1000, description="only those of the task with this key")]
Order = Annotated[Literal["oldest", "newest"], Query(description="which come first")]
TrialOrdering = Annotated[
    TrialOrder,
    Query(description="which come first; fastest: those that failed come last, whatever they were"),
]
Outcome = Annotated[
    Literal["", "ok", "wrong", "crashed", "timeout", "rejected"],
    Query(description="only those that went so"),
]
Where = Annotated[
    Literal["", "alone", "model", "screened"],
    Query(description="only those measured alone, in the model, or there briefly"),
]
Limit = Annotated[int, Query(ge=1, le=1000)]


class TaskView(BaseModel):
    """A kernel of the model as a tuning task, and its progress. Times are the microseconds of one
    call of the kernel."""

    task: str = Field(description="its key, a hash; records of all jobs have it")
    name: str = Field(description="for people")
    sizes: dict[str, int] = Field(description="the hot sizes that it is for; {} for those of all")
    calls: int = Field(description="how often a run of the model calls it; 0: it was replaced")
    share: float = Field(description="of the time of all kernels, as far as is known")
    rule: str = Field(description="that made its space")
    version: int = Field(description="of the rule")
    space: int = Field(description="schedules that the rule offers, before its constraint")
    default: dict[str, int] = Field(description="decisions of the analytic model")
    default_us: float | None = Field(description="predicted of those")
    decisions: dict[str, int] = Field(description="of the schedule that it has by now")
    source: str = Field(description="where it has that from: default, transferred or tuned")
    predicted_us: float | None = Field(description="of that schedule")
    measured_us: float | None = Field(description="of that schedule")
    trials: int = Field(description="of this job")
    failed: int = Field(description="of those")
    first_us: float | None = Field(
        description="of this job's first trial of the kernel alone that did not fail"
    )
    first_in_model_us: float | None = Field(description="of the first in the model")
    best_us: float | None = Field(description="of the fastest trial of the kernel alone")
    best_in_model_us: float | None = Field(description="of the fastest in the model")

    @classmethod
    def of(cls, task: JobTask) -> TaskView:
        fields = {name: task.schedule[name] for name in cls.model_fields if name in task.schedule}
        return cls(
            **finite(fields),
            trials=task.trials,
            failed=task.failed,
            first_us=_microseconds(task.first_alone_s),
            first_in_model_us=_microseconds(task.first_in_model_s),
            best_us=_microseconds(task.best_alone_s),
            best_in_model_us=_microseconds(task.best_in_model_s),
        )


class TaskPage(BaseModel):
    """A page of the tasks of a job, in the order of their kernels in the model."""

    tasks: list[TaskView]
    next: int | None = Field(description="`first` of the next page; null on the last one")


class TrialView(BaseModel):
    """A measured candidate."""

    id: str = Field(description="grows with time, and serves as `after`")
    task: str = Field(description="key of the task")
    rule: str = Field(description="whose decisions these are; `algorithm`: how a layer is computed")
    version: int = Field(description="of the rule")
    decisions: dict[str, int]
    status: str = Field(description="ok, wrong, crashed, timeout or rejected")
    context: str = Field(description="alone, or in the model")
    us: float | None = Field(description="of an undisturbed call; null for one that failed")
    samples: int = Field(description="timed calls")
    threads: int
    device_class: str | None = Field(description="of the device; null where it is not known")
    device: str | None = Field(description="that measured; null where it is not known")
    created: float = Field(description="Unix seconds")

    @classmethod
    def of(cls, trial: Trial, record: Mapping[str, Any]) -> TrialView:
        samples = record["samples_ns"]
        return cls(
            id=trial.id,
            task=trial.task,
            rule=record["rule"],
            version=record["version"],
            decisions=dict(record["decisions"]),
            status=record["status"],
            context=record["context"],
            us=finite(fast_quartile_mean(samples) * 1e-3),
            samples=len(samples),
            threads=record["threads"],
            device_class=record.get("device_class") or None,
            device=record.get("device") or None,
            created=record["created"],
        )


class TrialPage(BaseModel):
    """A page of the trials of a job."""

    trials: list[TrialView]
    next: str = Field(description="`after` of the next page; empty on the last one")


class RecordPage(BaseModel):
    """A page of the tuning records of a job as they are stored, which includes the text of the
    schedule and the time of every timed call."""

    records: list[dict[str, Any]]
    next: str = Field(description="`after` of the next page; empty on the last one")


class ValueView(BaseModel):
    """A value of a knob, and the trials whose schedule has this value. Times are the microseconds
    of one call of the kernel."""

    value: int
    trials: int = Field(description="failed ones included")
    best_us: float | None = Field(description="null where all failed")
    median_us: float | None = Field(description="of those that did not fail")


class KnobView(BaseModel):
    """A knob: a decision that every schedule of a kernel makes, such as a tile size."""

    knob: str
    values: list[ValueView] = Field(description="in their order")


class ChoicesView(BaseModel):
    """The times of a kernel's trials, grouped by the values of each knob."""

    trials: int = Field(description="that were looked at: the 1,000 fastest of the kernel at most")
    best_us: float | None
    knobs: list[KnobView]

    @classmethod
    def of(cls, summary: Choices) -> ChoicesView:
        return cls(
            trials=summary.trials,
            best_us=summary.best_us,
            knobs=[
                KnobView(
                    knob=knob,
                    values=[
                        ValueView(
                            value=value.value,
                            trials=value.trials,
                            best_us=value.best_us,
                            median_us=value.median_us,
                        )
                        for value in values
                    ],
                )
                for knob, values in summary.knobs.items()
            ],
        )


def _page(
    job: JobDep,
    farm: FarmDep,
    after: After = "",
    limit: Limit = 200,
    task: TaskKey = "",
    status: Outcome = "",
    context: Where = "",
    order: TrialOrdering = TrialOrder.OLDEST,
) -> tuple[list[tuple[Trial, dict[str, Any]]], str]:
    """Return a page of the job's trials that match the filters, each with its tuning record, and
    the `after` to pass for the next page; "" on the last page. Raises UsageError."""
    wanted = TrialFilter(task, status, context)
    trials, following = farm.trials.list(
        job.id, after=after, limit=limit, wanted=wanted, order=order
    )
    lines = farm.records_of(job).lines([trial.record for trial in trials])
    pairs = zip(trials, lines, strict=True)
    kept = [(trial, json.loads(line)) for trial, line in pairs if line is not None]
    return [(trial, record) for trial, record in kept if wanted.admits(record)], following


PageDep = Annotated[tuple[list[tuple[Trial, dict[str, Any]]], str], Depends(_page)]


@router.get("/{job_id}/tasks", responses=documented(400, 403, 404, 503))
def list_tasks(
    job: JobDep,
    farm: FarmDep,
    first: Annotated[int, Query(ge=0, le=MOST, description="`next` of the page before")] = 0,
    limit: Limit = 200,
) -> TaskPage:
    """Return the job's tasks, with the best schedule of each so far. Tasks expire some time after
    the job's end, when its events do."""
    tasks, following = farm.trials.tasks(job.id, first, limit)
    return TaskPage(tasks=[TaskView.of(task) for task in tasks], next=following)


@router.get("/{job_id}/trials", responses=documented(400, 403, 404, 503))
def list_trials(page: PageDep) -> TrialPage:
    """Return the trials of the job: about the newest FARRIER_TRIALS_KEPT, until some time after the
    job's end. Trials of an emulated device are not included. With a filter, a page before the last
    may have fewer than `limit` trials."""
    trials, following = page
    return TrialPage(trials=[TrialView.of(*pair) for pair in trials], next=following)


@router.get("/{job_id}/records", responses=documented(400, 403, 404, 503))
def list_records(page: PageDep) -> RecordPage:
    """Return the complete tuning records of the trials that `/trials` returns for the same
    filter."""
    trials, following = page
    return RecordPage(records=[finite(record) for _, record in trials], next=following)


@router.get("/{job_id}/tasks/{task}/choices", responses=documented(403, 404, 503))
def get_choices(
    job: JobDep,
    farm: FarmDep,
    task: Annotated[str, Path(max_length=1000, description="key of the task")],
) -> ChoicesView:
    """Return the times of the trials grouped by the value of each knob, for the 1,000 fastest
    trials of the kernel in this job. Trials that were measured within the whole model count only if
    no trial was measured on the kernel alone."""
    return ChoicesView.of(choices(farm.trials, farm.records_of(job), job.id, task))


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6
