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
        description="The `next` of the previous page, or the id of a trial: the page contains "
        "later trials.",
    ),
]
TaskKey = Annotated[
    str, Query(max_length=1000, description="Return only the trials of the task with this key.")
]
Order = Annotated[Literal["oldest", "newest"], Query(description="The order of the trials.")]
TrialOrdering = Annotated[
    TrialOrder,
    Query(description="The order of the trials. With `fastest`, failed trials come last."),
]
Outcome = Annotated[
    Literal["", "ok", "wrong", "crashed", "timeout", "rejected"],
    Query(description="Return only trials with this status."),
]
Where = Annotated[
    Literal["", "alone", "model", "screened"],
    Query(
        description="Return only trials that were measured in this context: on the kernel `alone`, "
        "in the `model`, or only briefly in the model (`screened`)."
    ),
]
Limit = Annotated[int, Query(ge=1, le=1000)]


class TaskView(BaseModel):
    """A kernel of the model as a tuning task, and its progress. Times are the microseconds of one
    call of the kernel."""

    task: str = Field(
        description="The key of the task, a hash. Records of all jobs use the same key."
    )
    name: str = Field(description="The name of the task for people.")
    sizes: dict[str, int] = Field(
        description="The sizes of open dimensions for which the kernel is specialized; {} for a "
        "kernel for all sizes."
    )
    calls: int = Field(
        description="The number of calls of the kernel in a run of the model; 0 if other kernels "
        "have replaced it."
    )
    share: float = Field(
        description="The kernel's fraction of the time of all kernels, as far as times are known."
    )
    rule: str = Field(description="The name of the rule that produced the space of schedules.")
    version: int = Field(description="The version of the rule.")
    space: int = Field(
        description="The number of schedules that the rule offers, before its constraint."
    )
    default: dict[str, int] = Field(
        description="The decisions of the default schedule, which the analytic model selects."
    )
    default_us: float | None = Field(description="The predicted time of the default schedule.")
    decisions: dict[str, int] = Field(description="The decisions of the current schedule.")
    source: str = Field(
        description="The origin of the current schedule: default, transferred or tuned."
    )
    predicted_us: float | None = Field(description="The predicted time of the current schedule.")
    measured_us: float | None = Field(description="The measured time of the current schedule.")
    trials: int = Field(description="The number of trials of the task in this job.")
    failed: int = Field(description="The number of failed trials of the task in this job.")
    first_us: float | None = Field(
        description="The time of the first successful trial of the task in this job, measured "
        "on the kernel alone."
    )
    first_in_model_us: float | None = Field(
        description="The time of the first successful trial of the task in this job, measured in "
        "the model."
    )
    best_us: float | None = Field(
        description="The time of the fastest trial of the task in this job, measured on the kernel "
        "alone."
    )
    best_in_model_us: float | None = Field(
        description="The time of the fastest trial of the task in this job, measured in the model."
    )

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
    next: int | None = Field(
        description="The value of `first` for the next page; null on the last page."
    )


class TrialView(BaseModel):
    """A measured candidate."""

    id: str = Field(description="The id of the trial. Ids grow with time; `after` takes one.")
    task: str = Field(description="The key of the task.")
    rule: str = Field(
        description="The name of the rule that defines the decisions; `algorithm` for the choice "
        "of a layer's algorithm."
    )
    version: int = Field(description="The version of the rule.")
    decisions: dict[str, int]
    status: str = Field(
        description="The status of the trial: ok, wrong, crashed, timeout or rejected."
    )
    context: str = Field(description="The context of the measurement, such as `alone` or `model`.")
    us: float | None = Field(
        description="The time of an undisturbed call in microseconds; null for a failed trial."
    )
    samples: int = Field(description="The number of timed calls.")
    threads: int
    device_class: str | None = Field(
        description="The id of the device's class; null if it is unknown."
    )
    device: str | None = Field(
        description="The name of the device that measured the trial; null if it is unknown."
    )
    created: float = Field(description="The time of the measurement in Unix seconds.")

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
    next: str = Field(description="The value of `after` for the next page; empty on the last page.")


class RecordPage(BaseModel):
    """A page of the tuning records of a job as they are stored, which includes the text of the
    schedule and the time of every timed call."""

    records: list[dict[str, Any]]
    next: str = Field(description="The value of `after` for the next page; empty on the last page.")


class ValueView(BaseModel):
    """A value of a knob, and the trials whose schedule has this value. Times are the microseconds
    of one call of the kernel."""

    value: int
    trials: int = Field(description="The number of trials with this value, including failed ones.")
    best_us: float | None = Field(
        description="The best time of these trials; null if all of them failed."
    )
    median_us: float | None = Field(
        description="The median time of the successful trials; null if all of them failed."
    )


class KnobView(BaseModel):
    """A knob: a decision that every schedule of a kernel makes, such as a tile size."""

    knob: str
    values: list[ValueView] = Field(description="The values of the knob, in order.")


class ChoicesView(BaseModel):
    """The times of a kernel's trials, grouped by the values of each knob."""

    trials: int = Field(
        description="The number of trials examined: at most the 1,000 fastest of the kernel."
    )
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
    first: Annotated[int, Query(ge=0, le=MOST, description="The `next` of the previous page.")] = 0,
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
    task: Annotated[str, Path(max_length=1000, description="The key of the task.")],
) -> ChoicesView:
    """Return the times of the trials grouped by the value of each knob, for the 1,000 fastest
    trials of the kernel in this job. Trials that were measured within the whole model count only if
    no trial was measured on the kernel alone."""
    return ChoicesView.of(choices(farm.trials, farm.records_of(job), job.id, task))


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6
