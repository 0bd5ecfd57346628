"""The route for the overview of the farm, which is the dashboard's first page."""

from __future__ import annotations

import functools

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from farrier_farm import overview
from farrier_farm.events import farm_events
from farrier_farm.farm import Farm
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.leases.states import State
from farrier_farm.settings import Settings
from farrier_server.access import ViewerDep
from farrier_server.api.jobs import JobView
from farrier_server.context import ContextDep
from farrier_server.problems import documented
from farrier_server.viewer import Viewer

router = APIRouter(prefix="/v1", tags=["overview"])


class JobCounts(BaseModel):
    """The number of jobs in each state, among the stored jobs that the caller may see."""

    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    dead: int


class DeviceCountsView(BaseModel):
    """The number of devices in each state."""

    connected: int = Field(description="The number of connected devices, in any state.")
    busy: int = Field(description="The number of connected devices that have a batch.")
    quarantined: int = Field(
        description="The number of connected devices in quarantine, after too many consecutive "
        "faults."
    )
    emulated: int = Field(
        description="The number of connected devices that are emulators, whose times differ from "
        "those of the hardware."
    )


class MinuteView(BaseModel):
    """The numbers of measured candidates, measured batches and ended jobs in one minute."""

    time: float = Field(description="The start of the minute in Unix seconds.")
    trials: int = Field(
        description="The number of candidates measured, without those of emulated devices."
    )
    batches: int = Field(description="The number of batches whose measurement was completed.")
    finished: int = Field(description="The number of jobs that ended, in any state.")


class RecordCount(BaseModel):
    """The number of tuning records."""

    count: int


class BrokerView(BaseModel):
    """The address at which the broker listens, if it runs on this server's host with the same
    settings."""

    port: int
    tls: bool = Field(
        description="True if the broker has a certificate, so that devices connect with TLS."
    )


class NewsView(BaseModel):
    """A recent warning or device event, in the format of `/v1/events`."""

    id: str = Field(
        description="The id of the event: the time in Unix milliseconds, a dash and a number. Ids "
        "grow with time."
    )
    kind: str = Field(description="The kind of the event: `warning` or `device`.")
    role: str | None = Field(description="The role (a process of the farm) that warns.")
    message: str | None
    device: str | None
    what: str | None = Field(
        description="The kind of the device's event, as in the device's history."
    )
    reason: str | None

    @classmethod
    def of(cls, item: farm_events.Item, viewer: Viewer) -> NewsView:
        """Return the view of a warning or device event. Its reason may quote a job, so only viewers
        who may see all jobs get the reason."""
        said = item.data.get
        return cls(
            id=item.id,
            kind=said("kind", ""),
            role=said("role"),
            message=said("message"),
            device=said("device"),
            what=said("what"),
            reason=said("reason") if viewer.is_operator else None,
        )


class OverviewView(BaseModel):
    """The state of the farm, at most half a second old."""

    time: float = Field(description="The time of the overview in Unix seconds.")
    jobs: JobCounts
    devices: DeviceCountsView
    throughput: list[MinuteView] = Field(
        description="The work of the last 60 minutes by minute, in order of time. The last "
        "minute is not over yet."
    )
    running: list[JobView] = Field(description="The 50 newest running jobs, the newest first.")
    finished: list[JobView] = Field(description="The 10 jobs that ended last, the latest first.")
    records: RecordCount
    broker: BrokerView
    news: list[NewsView] = Field(
        description="The newest warnings and device events, at most 20, the newest first."
    )

    @classmethod
    def of(cls, farm: overview.FarmOverview, settings: Settings, viewer: Viewer) -> OverviewView:
        return cls(
            time=farm.time,
            jobs=JobCounts(**{str(state): farm.jobs[state] for state in State}),
            devices=DeviceCountsView(
                connected=farm.devices.connected,
                busy=farm.devices.busy,
                quarantined=farm.devices.quarantined,
                emulated=farm.devices.emulated,
            ),
            throughput=[
                MinuteView(
                    time=minute.time,
                    trials=minute.trials,
                    batches=minute.batches,
                    finished=minute.finished,
                )
                for minute in farm.minutes
            ],
            running=[JobView.seen_by(viewer, job) for job in farm.running],
            finished=[JobView.seen_by(viewer, job) for job in farm.finished],
            records=RecordCount(count=farm.records),
            news=[NewsView.of(item, viewer) for item in farm.news],
            broker=BrokerView(port=settings.broker_port, tls=settings.tls_cert is not None),
        )


@router.get("/overview", response_model=OverviewView, responses=documented(503))
async def get_overview(context: ContextDep, viewer: ViewerDep) -> Response:
    """Return the numbers of jobs and devices, the throughput, and the running and recently ended
    jobs that the caller may see. The answer may be half a second old: all requests within that time
    share one computation."""
    make = functools.partial(_overview, context.farm, viewer)
    text = await context.shared.get(("overview", viewer), make)
    return Response(text, media_type="application/json", headers={"Cache-Control": "no-store"})


def _overview(farm: Farm, viewer: Viewer) -> bytes:
    farm_overview = farm.overview(viewer.shown(JobKind.COMPILE))
    return OverviewView.of(farm_overview, farm.settings, viewer).model_dump_json().encode()
