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

    connected: int = Field(description="in whatever state")
    busy: int = Field(description="of these: with a batch in hand")
    quarantined: int = Field(description="of these: with too many faults in a row")
    emulated: int = Field(description="of these: software, whose times say nothing")


class MinuteView(BaseModel):
    """The numbers of measured candidates, measured batches and ended jobs in one minute."""

    time: float = Field(description="Unix seconds at which it began")
    trials: int = Field(description="candidates measured; none of emulated devices")
    batches: int = Field(description="of candidates, measured to the end")
    finished: int = Field(description="jobs that ended, however")


class RecordCount(BaseModel):
    """The number of tuning records."""

    count: int


class BrokerView(BaseModel):
    """The address at which the broker listens, if it runs on this server's host with the same
    settings."""

    port: int
    tls: bool = Field(description="it has a certificate")


class NewsView(BaseModel):
    """A recent warning or device event, in the format of `/v1/events`."""

    id: str = Field(description="milliseconds of Unix time, a dash and a number; grows")
    kind: str = Field(description="warning or device")
    role: str | None = Field(description="that warns")
    message: str | None
    device: str | None
    what: str | None = Field(description="happened to it, as in its history")
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

    time: float = Field(description="Unix seconds")
    jobs: JobCounts
    devices: DeviceCountsView
    throughput: list[MinuteView] = Field(
        description="of the last 60 minutes, in the order of time; the last has just begun"
    )
    running: list[JobView] = Field(description="the newest 50, the newest first")
    finished: list[JobView] = Field(description="the 10 that ended last, the last first")
    records: RecordCount
    broker: BrokerView
    news: list[NewsView] = Field(
        description="the newest warnings and events of devices, the newest first; 20 at most"
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
