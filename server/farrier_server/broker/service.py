"""The service `Broker` of `device.proto`, implemented on the farm's devices and measurements.

The broker keeps no state: sessions, leases and results are in Redis, so any broker can serve any
device, and a restart loses nothing. All calls run on one event loop, and a device that waits for a
batch occupies neither a thread nor a connection to Redis (`dispatcher.py`). The work of a call in
Redis depends neither on the number of devices nor on the number of jobs. Files are read, and
results parsed, in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict

from farrier.errors import FarrierError, NotFoundError, ServiceError, StorageError, UsageError
from farrier_device import logs
from farrier_device.measurement import MeasureResult, result_from_json
from farrier_device.protocol import channel, device_pb2, device_pb2_grpc, version
from farrier_farm.access.audit import Entry
from farrier_farm.broker import DeviceSide
from farrier_farm.devices import devices
from farrier_farm.devices.async_enrolments import Enrolling
from farrier_farm.devices.enrolments import check_name
from farrier_farm.errors import (
    DeviceRefusedError,
    FencedOutError,
    StaleSessionError,
    UnknownDeviceError,
)
from farrier_farm.farm import Farm
from farrier_farm.measurements.async_batches import Batch, Report
from farrier_server.broker import versions
from farrier_server.broker.authentication import NOBODY, Authenticator, Caller
from farrier_server.broker.dispatcher import Dispatcher

LONGEST_WAIT_S = 30.0
# The random fraction of a wait, without which devices that called at the same time would always
# call again at the same time.
_SPREAD = 0.1
_log = logging.getLogger(__name__)


class BrokerService(device_pb2_grpc.BrokerServicer):
    """The implementation of the gRPC service. Each server has one instance."""

    def __init__(
        self,
        farm: Farm,
        device_side: DeviceSide,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        enrolling: Enrolling,
    ) -> None:
        self._settings = farm.settings
        self._blobs = farm.blobs
        self._audit = farm.audit
        self._sessions = device_side.sessions
        self._batches = device_side.batches
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._enrolling = enrolling

    async def Enrol(  # noqa: N802
        self, request: device_pb2.EnrolRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> device_pb2.EnrolReply:
        async with _answering(context):
            guest = self._authenticator.guest(context.invocation_metadata())
            if guest is None:
                raise UnknownDeviceError(NOBODY)
            own = await self._enrolling.enrol(guest, request.device_id, request.nonce)
            await self._note("devices.enrol", own.device, context.peer())
            return device_pb2.EnrolReply(
                device_id=own.device, generation=own.generation, secret=own.secret
            )

    async def _note(self, action: str, device: str, peer: str) -> None:
        """Add an action of a device to the audit log; if that fails, write the action to this
        process's log."""
        entry = Entry(device, "device", action, device, peer)
        try:
            await asyncio.to_thread(self._audit.note, entry)
        except FarrierError as error:
            _log.warning("an action is missing in the audit log: %s: %s", entry, error.message)

    async def Register(  # noqa: N802
        self, request: device_pb2.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> device_pb2.RegisterReply:
        async with _answering(context):
            check_name(request.device_id)
            caller = self._caller(context)
            caller.check(request.device_id)
            self._check_enrolled(request.device_id, caller)
            versions.check(request)
            description = _description(request.description)
            _check_sandbox(request.device_id, description, self._settings.sandbox)
            session = await self._sessions.connect(
                request.device_id, description, request.instance, caller.generation
            )
            _log.info("device %s connected from %s", request.device_id, context.peer())
            return device_pb2.RegisterReply(
                session=session,
                heartbeat_interval_ms=self._heartbeat_interval_ms(),
                protocol=version.PROTOCOL,
            )

    async def Heartbeat(  # noqa: N802
        self, request: device_pb2.HeartbeatRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> device_pb2.HeartbeatReply:
        async with self._session(request.session, context) as (device, session, _):
            ready = request.state == device_pb2.DEVICE_STATE_READY
            if request.state == device_pb2.DEVICE_STATE_UNHEALTHY:
                _log.warning("device %s cannot measure: %s", device, request.message)
            health = MessageToDict(request.health, preserving_proto_field_name=True)
            standing = await self._sessions.heartbeat(
                device, session, draining=not ready, health=health
            )
            self._dispatcher.heard(device, standing)
            revoked = await self._batches.renew_held(device, request.leases)
            return device_pb2.HeartbeatReply(revoked=revoked)

    async def Lease(  # noqa: N802
        self, request: device_pb2.LeaseRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> device_pb2.LeaseReply:
        async with self._session(request.session, context) as (device, session, caller):
            wait_s = min(request.wait_ms / 1000, LONGEST_WAIT_S) * random.uniform(1 - _SPREAD, 1)
            batch = await self._dispatcher.next(device, session, wait_s)
            signed = None if batch is None else self._signed(batch, caller)
            return device_pb2.LeaseReply(batch=signed)

    async def Report(  # noqa: N802
        self, request: device_pb2.ReportRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> device_pb2.ReportReply:
        async with self._session(request.session, context) as (device, session, caller):
            words = (request.lease, request.fence, request.result, request.signature)
            signed = caller.has_signed(*words)
            result = await asyncio.to_thread(_result, request.result, signed)
            report = await self._batches.report(
                device, session, request.lease, request.fence, result
            )
            match report:
                case Report.ACCEPTED:
                    acceptance = device_pb2.ACCEPTANCE_ACCEPTED
                case Report.STALE:
                    acceptance = device_pb2.ACCEPTANCE_STALE
            return device_pb2.ReportReply(acceptance=acceptance)

    async def GetBlob(  # noqa: N802
        self, request: device_pb2.GetBlobRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[device_pb2.BlobChunk]:
        async with self._session(request.session, context) as (device, session, _):
            try:
                if not await self._sessions.may_read(device, session, request.sha256):
                    raise NotFoundError(f"no blob {request.sha256}")
                path = await asyncio.to_thread(self._blobs.path, request.sha256)
            except NotFoundError:  # The answer must not reveal blobs of other devices.
                why = f"there is no blob {request.sha256} in a batch of this device"
                await context.abort(grpc.StatusCode.OUT_OF_RANGE, why)
            with path.open("rb") as file:
                # A seek beyond the end may be refused, as offsets have a limit on some file
                # systems.
                file.seek(min(request.offset, os.fstat(file.fileno()).st_size))
                while data := await asyncio.to_thread(file.read, channel.CHUNK_BYTES):
                    yield device_pb2.BlobChunk(data=data)

    def _caller(self, context: grpc.aio.ServicerContext[Any, Any]) -> Caller:
        caller = self._authenticator.caller(context.invocation_metadata())
        if caller is None:
            raise UnknownDeviceError(NOBODY)
        return caller

    def _check_enrolled(self, device: str, caller: Caller) -> None:
        """Raise DeviceRefusedError if this farm requires enrolment and the device has no secret of
        its own."""
        if caller.own is None and not self._settings.open_enrolment:
            raise DeviceRefusedError(
                f"the device {device} has no secret of its own, which this farm requires",
                hint=f"farrier devices add {device} makes a token for --enrol",
            )

    @contextlib.asynccontextmanager
    async def _session(
        self, session: device_pb2.Session, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[tuple[str, str, Caller]]:
        """Return a context for a call that names a session. It checks the caller and yields the
        device's id, the session's id and the caller. If the session is no longer valid, the call
        ends with the status ABORTED (another instance of the agent has replaced the session) or
        NOT_FOUND (the device has to register again)."""
        async with _answering(context):
            try:
                with logs.about(device=session.device_id):
                    caller = self._caller(context)
                    self._check_enrolled(session.device_id, caller)
                    caller.check_session(session.device_id, session.id)
                    yield session.device_id, session.id, caller
            except FencedOutError as error:
                await context.abort(grpc.StatusCode.ABORTED, error.message)
            except StaleSessionError as error:
                await context.abort(grpc.StatusCode.NOT_FOUND, error.message)

    def _signed(self, batch: Batch, caller: Caller) -> device_pb2.Batch:
        manifest = batch.manifest.encode()
        return device_pb2.Batch(
            lease=batch.lease.item,
            fence=batch.lease.fence,
            manifest=manifest,
            signature=caller.sign(batch.lease.item, batch.lease.fence, manifest),
            deadline_ms=int(self._settings.batch_timeout_s * 1000),
        )

    def _heartbeat_interval_ms(self) -> int:
        """The interval at which a device sends heartbeats: a lease or a device expires only after
        four missing heartbeats."""
        settings = self._settings
        return int(min(settings.lease_s, settings.device_expiry_s) * 1000 / 5)


@contextlib.asynccontextmanager
async def _answering(context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    """Return a context that turns errors into gRPC statuses. An unexpected exception is logged
    here, and reported to the caller without details."""
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except FarrierError as error:
        await context.abort(_status(error), str(error))
    except Exception:
        _log.exception("a call of %s failed", context.peer())
        await context.abort(grpc.StatusCode.INTERNAL, "this is a defect of the broker: see its log")


def _status(error: FarrierError) -> grpc.StatusCode:
    match error:
        case ServiceError() | StorageError():
            return grpc.StatusCode.UNAVAILABLE  # Agents retry after this status.
        case UsageError():
            return grpc.StatusCode.INVALID_ARGUMENT
        case UnknownDeviceError():
            return grpc.StatusCode.UNAUTHENTICATED
        case DeviceRefusedError():
            return grpc.StatusCode.PERMISSION_DENIED
        case _:
            return grpc.StatusCode.FAILED_PRECONDITION


def _check_sandbox(device_id: str, description: Mapping[str, Any], required: str) -> None:
    """Raise UsageError if the device's sandbox lacks a layer that the farm requires
    (`required`)."""
    missing = devices.missing_layers(required, description)
    if missing:
        raise UsageError(
            f"this farm requires a sandbox with {required}; the sandbox of {device_id} lacks "
            f"{', '.join(missing)}",
            hint="FARRIER_SANDBOX of the broker sets the requirement",
        )


def _description(description: device_pb2.Description) -> dict[str, Any]:
    """Return the description of a device's machine as the farm stores it: a dictionary of the
    fields of the Protobuf message."""
    fields = {f.name: getattr(description, f.name) for f in description.DESCRIPTOR.fields}
    adapters = [
        {
            "name": adapter.name,
            "driver": adapter.driver,
            "emulated": adapter.emulated,
            "features": list(adapter.features),
            "limits": dict(adapter.limits),
        }
        for adapter in description.adapters
    ]
    return {
        **fields,
        "features": list(description.features),
        "engines": dict(description.engines),
        "kinds": list(description.kinds),
        "adapters": adapters,
    }


def _result(text: bytes, signed: bool) -> MeasureResult:
    """Return the result in the JSON `text` that a device reports, marked as signed or unsigned."""
    try:
        return dataclasses.replace(result_from_json(text.decode()), signed=signed)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the result is malformed: {error}") from None
