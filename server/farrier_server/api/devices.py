"""Routes for devices, the machines that measure candidates."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from farrier_farm.devices import devices, history
from farrier_farm.devices.devices import DeviceState
from farrier_farm.farm import Farm
from farrier_server.access import ViewerDep
from farrier_server.api.trials import After, Order
from farrier_server.context import FarmDep
from farrier_server.finite import finite
from farrier_server.problems import documented
from farrier_server.viewer import Viewer

router = APIRouter(prefix="/v1/devices", tags=["devices"])
DeviceId = Annotated[str, Path(description="of the device", max_length=100)]


class LoadView(BaseModel):
    """The batches and the busy time of a device in one minute."""

    time: float = Field(description="Unix seconds at which it began")
    batches: int = Field(description="measured to the end")
    busy_s: float = Field(description="in which it had a batch in hand")


class DeviceView(BaseModel):
    """The present state of a device."""

    id: str
    device_class: str = Field(description="id of its class")
    state: DeviceState
    description: dict[str, Any] = Field(description="what its agent says: arch, cpu, features, …")
    engines: dict[str, str] = Field(
        description="other engines that models can be raced with on it: version by name"
    )
    seen: float = Field(description="Unix seconds of the last heartbeat")
    lease: str | None = Field(description="the measurement batch in hand")
    measured: int = Field(description="batches")
    faults: int = Field(description="batches lost to the device: drift, crashes of its agent")
    unfit: str = Field(description="why its agent gets no work, and the way out; else empty")
    trusted: bool = Field(description="an operator vouches for what it measures")
    enrolled: float | None = Field(
        description="Unix seconds since which it has a secret of its own; null where it has none"
    )
    standing: str = Field(description="paused, drained or revoked by an operator; else empty")
    tags: list[str] = Field(description="that operators gave it")
    health: dict[str, Any] = Field(
        description="celsius, limit_celsius, clock_mhz, max_clock_mhz, throttled (why, now), "
        "throttles (how often) and waits (for what it takes no batch), as far as its system tells"
    )
    busy: float = Field(
        description="share of the last ten minutes in which it had a batch in hand, from 0 to 1"
    )
    throughput: list[LoadView] = Field(
        description="by minute, of the last half hour, in the order of time; minutes in which it "
        "did nothing are left out"
    )

    @classmethod
    def of(cls, device: devices.Device) -> DeviceView:
        return cls(
            id=device.id,
            device_class=device.device_class,
            state=device.state,
            description=finite(device.description),
            engines=dict(device.engines),
            seen=device.seen,
            lease=device.lease,
            measured=device.measured,
            faults=device.faults,
            unfit=device.unfit,
            trusted=device.trusted,
            enrolled=device.enrolled,
            standing=device.standing,
            tags=list(device.tags),
            health=finite(device.health),
            busy=device.busy,
            throughput=[
                LoadView(time=load.time, batches=load.batches, busy_s=load.busy_s)
                for load in device.load
            ],
        )


class DeviceList(BaseModel):
    """A page of all devices that were ever registered, ordered by id."""

    devices: list[DeviceView]
    next: str = Field(description="`after` of the next page; empty on the last one")


class DeviceEventView(BaseModel):
    """An event in the history of a device."""

    id: str = Field(description="grows with time, and serves as `after`")
    at: float = Field(description="Unix seconds")
    what: str = Field(
        description="connected, lost, back, draining, leased, measured, faulted, acquitted, "
        "quarantined, unfit, released, trusted, untrusted, enrolled, paused, drained, resumed or "
        "revoked"
    )
    device_class: str | None = Field(description="with which it connected")
    batch: str | None = Field(description="that it leased, measured or faulted on")
    job: str | None = Field(description="that the batch is of")
    seconds: float | None = Field(description="from the lease of a batch to its result")
    reason: str | None = Field(description="of a fault, and of a quarantine")
    in_a_row: int | None = Field(description="faults by then")

    @classmethod
    def of(cls, happening: history.DeviceEvent) -> DeviceEventView:
        optional = {
            name: happening.data.get(name) for name in ("batch", "job", "seconds", "reason")
        }
        return cls(
            id=happening.id,
            at=happening.at,
            what=happening.data["what"],
            device_class=happening.data.get("class"),
            in_a_row=happening.data.get("in_a_row"),
            **optional,
        )


class HistoryPage(BaseModel):
    """A page of the history of a device."""

    history: list[DeviceEventView]
    next: str = Field(description="`after` of the next page; empty on the last one")


@router.get("", responses=documented(400, 503))
def list_devices(
    farm: FarmDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
    after: Annotated[str, Query(max_length=100, description="`next` of the page before")] = "",
    tag: Annotated[str, Query(max_length=50, description="those that have it")] = "",
) -> DeviceList:
    """Return devices, connected or not. If `tag` selects devices, a page before the last may have
    fewer than `limit` devices, or none."""
    page, following = farm.devices.page(limit=limit, after=after)
    views = [DeviceView.of(device) for device in page if not tag or tag in device.tags]
    return DeviceList(devices=views, next=following)


@router.get("/{device_id}", responses=documented(404, 503))
def get_device(device_id: DeviceId, farm: FarmDep) -> DeviceView:
    """Return the present state of a device."""
    return DeviceView.of(farm.devices.get(device_id))


@router.get("/{device_id}/history", responses=documented(400, 404, 503))
def get_history(
    device_id: DeviceId,
    farm: FarmDep,
    viewer: ViewerDep,
    after: After = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    order: Order = "newest",
) -> HistoryPage:
    """Return a page of the history of a device. About 1,000 events are kept, two for each batch.
    Events of jobs that the caller may not see lack the job's id, the batch and the reason."""
    farm.devices.get(device_id)
    events, following = history.history(
        farm.client, device_id, after=after, limit=limit, newest_first=order == "newest"
    )
    views = _shown_to(viewer, farm, [DeviceEventView.of(event) for event in events])
    return HistoryPage(history=views, next=following)


def _shown_to(viewer: Viewer, farm: Farm, views: list[DeviceEventView]) -> list[DeviceEventView]:
    """Return the events `views` of a device, without the job, batch and reason of events whose job
    the viewer may not see."""
    if viewer.is_operator:
        return views
    ids = {view.job for view in views if view.job is not None}
    seen = {job.id for job in farm.jobs.many(ids) if viewer.sees(job)}
    nothing = {"job": None, "batch": None, "reason": None}
    hidden = ids - seen
    return [view.model_copy(update=nothing) if view.job in hidden else view for view in views]


@router.post("/{device_id}/release", responses=documented(404, 503))
def release_device(device_id: DeviceId, farm: FarmDep) -> DeviceView:
    """End the quarantine of a device, after an operator has checked that the device measures
    correctly again."""
    return DeviceView.of(farm.devices.release(device_id))


@router.post("/{device_id}/trust", responses=documented(404, 409, 503))
def trust_device(device_id: DeviceId, farm: FarmDep) -> DeviceView:
    """Mark the device as trusted: a model that was verified on a trusted device counts as verified.
    409 for a device without a secret of its own, because anybody who has the shared token can use
    the name of such a device."""
    return DeviceView.of(farm.devices.trust(device_id))


@router.post("/{device_id}/untrust", responses=documented(404, 503))
def untrust_device(device_id: DeviceId, farm: FarmDep) -> DeviceView:
    """Mark the device as not trusted: a verification on this device alone no longer counts."""
    return DeviceView.of(farm.devices.trust(device_id, False))
