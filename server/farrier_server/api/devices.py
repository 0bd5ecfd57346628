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
DeviceId = Annotated[str, Path(description="The id of the device.", max_length=100)]


class LoadView(BaseModel):
    """The batches and the busy time of a device in one minute."""

    time: float = Field(description="The start of the minute in Unix seconds.")
    batches: int = Field(description="The number of batches whose measurement was completed.")
    busy_s: float = Field(description="The seconds of the minute in which the device had a batch.")


class DeviceView(BaseModel):
    """The present state of a device."""

    id: str
    device_class: str = Field(description="The id of the device's class.")
    state: DeviceState
    description: dict[str, Any] = Field(
        description="The report of the device's agent: arch, cpu, features, …."
    )
    engines: dict[str, str] = Field(
        description="The other inference engines with which models can be compared on the "
        "device: version by name."
    )
    seen: float = Field(description="The time of the last heartbeat in Unix seconds.")
    lease: str | None = Field(
        description="The id of the batch that the device measures now; null if it has none."
    )
    measured: int = Field(description="The number of batches that the device has measured.")
    faults: int = Field(
        description="The number of batches that failed because of the device, for example because "
        "of drift or a crash of its agent."
    )
    unfit: str = Field(
        description="The reason why the agent gets no batches, and a way to solve the problem; "
        "empty if there is no problem."
    )
    trusted: bool = Field(description="True if an operator trusts the measurements of the device.")
    enrolled: float | None = Field(
        description="The time since which the device has a secret of its own, in Unix seconds; "
        "null if it has only the shared token."
    )
    standing: str = Field(
        description="The standing that an operator has set: `paused`, `drained` or `revoked`; "
        "empty in normal operation."
    )
    tags: list[str] = Field(description="The tags that operators have set.")
    health: dict[str, Any] = Field(
        description="The state of the hardware, as far as the system reports it: `celsius`, "
        "`limit_celsius`, `clock_mhz`, `max_clock_mhz`, `throttled` (the reason "
        "for throttling now), `throttles` (the number of times) and `waits` (the "
        "reason why the device takes no batch now)."
    )
    busy: float = Field(
        description="The fraction of the last ten minutes, from 0 to 1, in which the device "
        "had a batch."
    )
    throughput: list[LoadView] = Field(
        description="The work of the last half hour by minute, in order of time. Minutes "
        "without work are left out."
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
    next: str = Field(description="The value of `after` for the next page; empty on the last page.")


class DeviceEventView(BaseModel):
    """An event in the history of a device."""

    id: str = Field(description="The id of the event. Ids grow with time; `after` takes one.")
    at: float = Field(description="The time of the event in Unix seconds.")
    what: str = Field(
        description="The kind of the event: connected, lost, back, draining, leased, measured, "
        "faulted, acquitted, quarantined, unfit, released, trusted, untrusted, "
        "enrolled, paused, drained, resumed or revoked."
    )
    device_class: str | None = Field(
        description="The id of the class with which the device connected."
    )
    batch: str | None = Field(
        description="The id of the batch that the device leased or measured, or on which it failed."
    )
    job: str | None = Field(description="The id of the job to which the batch belongs.")
    seconds: float | None = Field(
        description="The seconds from the lease of the batch to its result."
    )
    reason: str | None = Field(description="The reason for a fault or a quarantine.")
    in_a_row: int | None = Field(description="The number of consecutive faults up to this event.")

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
    next: str = Field(description="The value of `after` for the next page; empty on the last page.")


@router.get("", responses=documented(400, 503))
def list_devices(
    farm: FarmDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
    after: Annotated[
        str, Query(max_length=100, description="The `next` of the previous page.")
    ] = "",
    tag: Annotated[
        str, Query(max_length=50, description="Return only devices with this tag.")
    ] = "",
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
