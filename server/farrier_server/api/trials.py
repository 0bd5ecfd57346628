"""What a job does: its tasks, its trials, and the tuning records that they became, page by page."""

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

ENTRY_ID = r"^(\d{1,18}-\d{1,18})?$"  # of an entry of a log; empty: before the first
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
    """One kernel of the model, and how far it is. Times are microseconds of one call."""

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
        known = {name: task.schedule[name] for name in cls.model_fields if name in task.schedule}
        return cls(
            **finite(known),
            trials=task.trials,
            failed=task.failed,
            first_us=_microseconds(task.first_alone_s),
            first_in_model_us=_microseconds(task.first_in_model_s),
            best_us=_microseconds(task.best_alone_s),
            best_in_model_us=_microseconds(task.best_in_model_s),
        )


class TaskPage(BaseModel):
    """Some tasks of a job, in the order of the model."""

    tasks: list[TaskView]
    next: int | None = Field(description="`first` of the next page; null on the last one")


class TrialView(BaseModel):
    """One measured candidate."""

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
    """Some trials of a job."""

    trials: list[TrialView]
    next: str = Field(description="`after` of the next page; empty on the last one")


class RecordPage(BaseModel):
    """Some tuning records of a job, as they are stored: with the schedule's text, and every timed
    call."""

    records: list[dict[str, Any]]
    next: str = Field(description="`after` of the next page; empty on the last one")


class ValueView(BaseModel):
    """One value of a knob, and the trials that chose it. Times are microseconds of one call."""

    value: int
    trials: int = Field(description="failed ones included")
    best_us: float | None = Field(description="null where all failed")
    median_us: float | None = Field(description="of those that did not fail")


class KnobView(BaseModel):
    """One decision of a schedule."""

    knob: str
    values: list[ValueView] = Field(description="in their order")


class ChoicesView(BaseModel):
    """What the choices of a kernel's schedule brought."""

    trials: int = Field(description="that were looked at: the 1,000 fastest of the kernel at most")
    best_us: float | None
    knobs: list[KnobView]

    @classmethod
    def of(cls, found: Choices) -> ChoicesView:
        return cls(
            trials=found.trials,
            best_us=found.best_us,
            knobs=[
                KnobView(
                    knob=knob,
                    values=[
                        ValueView(
                            value=one.value,
                            trials=one.trials,
                            best_us=one.best_us,
                            median_us=one.median_us,
                        )
                        for one in values
                    ],
                )
                for knob, values in found.knobs.items()
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
    """Trials with their records, and the `after` of the next page. Raises UsageError."""
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
    """The job's tasks, with the schedules that they have by now. They are forgotten a while after
    the job's end, as its events are."""
    tasks, following = farm.trials.tasks(job.id, first, limit)
    return TaskPage(tasks=[TaskView.of(task) for task in tasks], next=following)


@router.get("/{job_id}/trials", responses=documented(400, 403, 404, 503))
def list_trials(page: PageDep) -> TrialPage:
    """What the job measured: the newest FARRIER_TRIALS_KEPT trials, roughly, until a while after
    its end; none of an emulated device. A page of some trials alone that is not the last may have
    fewer than `limit`."""
    trials, following = page
    return TrialPage(trials=[TrialView.of(*one) for one in trials], next=following)


@router.get("/{job_id}/records", responses=documented(400, 403, 404, 503))
def list_records(page: PageDep) -> RecordPage:
    """The tuning records of the same trials, whole."""
    trials, following = page
    return RecordPage(records=[finite(record) for _, record in trials], next=following)


@router.get("/{job_id}/tasks/{task}/choices", responses=documented(403, 404, 503))
def get_choices(
    job: JobDep,
    farm: FarmDep,
    task: Annotated[str, Path(max_length=1000, description="key of the task")],
) -> ChoicesView:
    """What each choice brought: the times of the trials that made it, of the 1,000 fastest trials
    of the kernel in this job. Those alone count, or, where there are none, those in the model."""
    return ChoicesView.of(choices(farm.trials, farm.records_of(job), job.id, task))


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6
