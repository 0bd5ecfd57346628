"""The check that the versions of a broker and of a device agent are compatible."""

from __future__ import annotations

from farrier.errors import ConflictError
from farrier_device.protocol import device_pb2
from farrier_device.protocol.version import OLDEST, PROTOCOL, named


def check(request: device_pb2.RegisterRequest) -> None:
    """Check the version of the agent that sent `request`. Raises ConflictError, which names the
    side to update, for an agent that is too old or too new for this broker."""
    speaks = named(request.protocol)
    release = request.description.agent_version
    agent = f"the agent of {request.device_id}{f' ({release})' if release else ''}"
    if speaks < OLDEST:
        raise ConflictError(
            f"{agent} uses version {speaks} of the protocol; this farm needs version {OLDEST} "
            "or newer",
            hint="update farrier-device on that machine",
        )
    if request.oldest_protocol > PROTOCOL:
        raise ConflictError(
            f"{agent} needs version {request.oldest_protocol} of the protocol or newer; this "
            f"farm uses version {PROTOCOL}",
            hint="update the farm's server, or install the farrier-device of its release",
        )
