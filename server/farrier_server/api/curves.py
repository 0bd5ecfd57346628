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

_SECONDS = Field(description="since the job began")


class ModelPoint(BaseModel):
    """A point of the model's curve: the trial at which the model's best time fell to this value."""

    trial: int = Field(description="counted over the whole job; events have it as `trial`")
    seconds: float = _SECONDS
    ms: float = Field(description="estimated latency of the best code by then")


class TaskPoint(BaseModel):
    """A point of a kernel's curve: the trial at which the kernel's best time fell to this value."""

    trial: int = Field(description="of this task, from 1 on")
    seconds: float = _SECONDS
    us: float = Field(description="of one call, of the kernel alone")


class TaskCurveView(BaseModel):
    """The best time of a kernel over its trials."""

    task: str = Field(description="its key")
    name: str = Field(description="for people")
    calls: int = Field(description="how often a run of the model calls it")
    share: float = Field(description="of the time of all kernels, as far as is known")
    points: list[TaskPoint]


class CurveView(BaseModel):
    """The best time of the model, and of each measured kernel, over the trials. Each curve is a
    step function: the value of a point holds until the next point, that of the last point until
    `trials`."""

    event: str = Field(
        description="id of an event of the job: all that was said until then is in the curves, so "
        "what follows is at /events?after=; empty where the events are forgotten"
    )
    trials: int = Field(description="candidates measured so far")
    points: list[ModelPoint] = Field(
        description="falling, but where a kernel's first measurement replaces a prediction"
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
        int, Query(ge=3, le=2000, description="of the model's curve at most; kernels have fewer")
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
