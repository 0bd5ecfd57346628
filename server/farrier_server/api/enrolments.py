"""Routes by which operators manage devices: enrolment tokens, and the standing and tags of a
device."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from farrier_farm.devices.enrolments import EXPIRY_S, LONGEST_EXPIRY_S, MOST_TAGS
from farrier_farm.farm import Farm
from farrier_server.api.devices import DeviceId
from farrier_server.context import FarmDep
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/devices", tags=["devices"])


class InvitationRequest(BaseModel):
    """A request for a token with which a device can enrol."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=100, description="The name that the device will have.")
    expires_s: float = Field(
        default=EXPIRY_S,
        gt=0,
        le=LONGEST_EXPIRY_S,
        allow_inf_nan=False,
        description="The seconds from now until the token expires; at most 30 days.",
    )
    again: bool = Field(
        default=False,
        description="True if the name may belong to an enrolled device. The secret of that "
        "device stays valid until the new device enrols.",
    )


class InvitationView(BaseModel):
    """The token with which a device enrols. The token is shown only in this answer."""

    name: str
    token: str = Field(
        description="The token for `farrier-device --enrol`. It is valid for one enrolment."
    )
    expires: float = Field(description="The time at which the token expires, in Unix seconds.")


class TagsRequest(BaseModel):
    """The tags that replace the present tags of a device."""

    model_config = ConfigDict(extra="forbid")

    tags: Annotated[list[Annotated[str, Field(max_length=50)]], Field(max_length=MOST_TAGS)]


class StandingView(BaseModel):
    """The standing of a device: whether operators have revoked, drained or paused the device."""

    id: str
    enrolled: float | None = Field(
        description="The time of the enrolment in Unix seconds; null for a device that has "
        "only the shared token."
    )
    standing: Literal["", "paused", "drained", "revoked"]
    tags: list[str]

    @classmethod
    def of(cls, device_id: str, farm: Farm) -> StandingView:
        about = farm.enrolments.about(device_id)
        return cls.model_validate({"id": device_id, **dataclasses.asdict(about)})


@router.post("", status_code=201, responses=documented(400, 409, 503))
def add_device(wanted: InvitationRequest, farm: FarmDep) -> InvitationView:
    """Create a token with which a device enrols under this name."""
    invitation = farm.enrolments.invite(wanted.name, expires_s=wanted.expires_s, again=wanted.again)
    return InvitationView(name=invitation.name, token=invitation.token, expires=invitation.expires)


@router.delete("/{device_id}", status_code=204, responses=documented(404, 409, 503))
def remove_device(device_id: DeviceId, farm: FarmDep) -> Response:
    """Remove a device and its history. The device must be disconnected or revoked."""
    farm.enrolments.remove(device_id)
    return Response(status_code=204)


@router.post("/{device_id}/revoke", responses=documented(404, 503))
def revoke_device(device_id: DeviceId, farm: FarmDep) -> StandingView:
    """End a device's session at once, and refuse the device until it enrols again."""
    farm.enrolments.revoke(device_id)
    return StandingView.of(device_id, farm)


@router.post("/{device_id}/drain", responses=documented(404, 409, 503))
def drain_device(device_id: DeviceId, farm: FarmDep) -> StandingView:
    """Let a device finish its present batch; it gets no other batch until its agent restarts."""
    farm.enrolments.drain(device_id)
    return StandingView.of(device_id, farm)


@router.post("/{device_id}/pause", responses=documented(404, 409, 503))
def pause_device(device_id: DeviceId, farm: FarmDep) -> StandingView:
    """Let a device finish its present batch; it gets no other batch until it is resumed."""
    farm.enrolments.pause(device_id)
    return StandingView.of(device_id, farm)


@router.post("/{device_id}/resume", responses=documented(404, 409, 503))
def resume_device(device_id: DeviceId, farm: FarmDep) -> StandingView:
    """Let a paused or drained device get batches again."""
    farm.enrolments.resume(device_id)
    return StandingView.of(device_id, farm)


@router.put("/{device_id}/tags", responses=documented(400, 404, 503))
def tag_device(device_id: DeviceId, wanted: TagsRequest, farm: FarmDep) -> StandingView:
    """Replace all tags of a device."""
    farm.enrolments.tag(device_id, wanted.tags)
    return StandingView.of(device_id, farm)
