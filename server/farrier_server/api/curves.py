"""The route for the tuning curve of a job: the best time over the trials, thinned to the number of
points that a chart can show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from farrier_farm.jobs import curves
from farrier_server.access import JobId
from farrier_server.context import FarmDep
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/jobs", tags=["trials"])
_OF_A_TASK = 200  # points at most

_SECONDS = Field(description="The seconds since the start of the job.")


class ModelPoint(BaseModel):
    """A point of the model's curve: the trial at which the model's best time fell to this value."""

    trial: int = Field(
        description="The number of the trial, counted over the whole job, as in the field `trial` "
        "of events."
    )
    seconds: float = _SECONDS
    ms: float = Field(description="The estimated latency of the best code so far, in ms.")


class TaskPoint(BaseModel):
    """A point of a kernel's curve: the trial at which the kernel's best time fell to this value."""

    trial: int = Field(description="The number of the trial among the trials of this task, from 1.")
    seconds: float = _SECONDS
    us: float = Field(
        description="The time of one call of the kernel in microseconds, measured on the kernel "
        "alone."
    )


class TaskCurveView(BaseModel):
    """The best time of a kernel over its trials."""

    task: str = Field(description="The key of the task.")
    name: str = Field(description="The name of the task for people.")
    calls: int = Field(description="The number of calls of the kernel in a run of the model.")
    share: float = Field(
        description="The kernel's fraction of the time of all kernels, as far as times are known."
    )
    points: list[TaskPoint]


class CurveView(BaseModel):
    """The best time of the model, and of each measured kernel, over the trials. Each curve is a
    step function: the value of a point holds until the next point, that of the last point until
    `trials`."""

    event: str = Field(
        description="The id of an event of the job. The curves include all events up to this "
        "one; later events are at `/events?after=`. Empty if the events have "
        "expired."
    )
    trials: int = Field(description="The number of candidates measured so far.")
    points: list[ModelPoint] = Field(
        description="The points of the model's curve. Times fall, except that the first "
        "measurement of a kernel may replace a prediction by a larger time."
    )
    tasks: list[TaskCurveView]

    @classmethod
    def of(cls, curve: curves.JobCurve) -> CurveView:
        return cls(
            event=curve.event,
            trials=curve.trials,
            points=[
                ModelPoint(trial=point.trial, seconds=point.seconds, ms=point.time)
                for point in curve.points
            ],
            tasks=[
                TaskCurveView(
                    task=task.task,
                    name=task.name,
                    calls=task.calls,
                    share=task.share,
                    points=_task_points(task.points),
                )
                for task in curve.tasks
            ],
        )


@router.get("/{job_id}/curve", responses=documented(400, 403, 404, 503))
def get_curve(
    job_id: JobId,
    farm: FarmDep,
    points: Annotated[
        int,
        Query(
            ge=3,
            le=2000,
            description="The maximum number of points of the model's curve; curves of kernels have "
            "fewer.",
        ),
    ] = 500,
) -> CurveView:
    """Return the best time so far over trials and over seconds. A curve has at most `points`
    points: the largest steps, and always the first, the last and the lowest point. Curves expire
    some time after the job's end, when its events do."""
    return CurveView.of(farm.curves.read(job_id, points, min(points, _OF_A_TASK)))


def _task_points(points: Sequence[curves.Point]) -> list[TaskPoint]:
    return [
        TaskPoint(trial=point.trial, seconds=point.seconds, us=point.time * 1e-3)
        for point in points
    ]
