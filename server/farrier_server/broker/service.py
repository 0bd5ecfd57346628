"""The Broker service of `device.proto` on the farm's devices and measurements.

The broker keeps nothing: sessions, leases and results are in Redis, so any broker serves any
device and a restart loses nothing. The farm's calls block, so they run in threads: those that wait
for work in one pool, one thread a waiting device, all others in a pool that waiters never fill.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import grpc
import grpc.aio

from farrier.errors import FarrierError, NotFoundError, ServiceError, StorageError, UsageError
from farrier_device.measurement import MeasureResult, result_from_json
from farrier_device.protocol import channel, device_pb2, device_pb2_grpc, signing
from farrier_farm import devices
from farrier_farm.errors import StaleSessionError
from farrier_farm.farm import Farm
from farrier_farm.measurements import Batch, Report

WAITING_DEVICES = 512  # at once; more of them poll more slowly
LONGEST_WAIT_S = 30.0
_SLICE_S = 1.0  # a wait for work looks this often whether its device or the broker is leaving
_DEVICE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class BrokerService(device_pb2_grpc.BrokerServicer):
    """One per server; `stopping` ends waits for work."""

    def __init__(self, farm: Farm, device_token: str) -> None:
        self.stopping = asyncio.Event()
        self._farm = farm
        self._token = device_token
        self._waiters = concurrent.futures.ThreadPoolExecutor(WAITING_DEVICES, "lease")
        self._others = concurrent.futures.ThreadPoolExecutor(32, "broker")

    def close(self) -> None:
        """Waits for the threads."""
        self._waiters.shutdown()
        self._others.shutdown()

    async def Register(  # noqa: N802
        self, request: device_pb2.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> device_pb2.RegisterReply:
        async with _answering(context):
            if not _DEVICE_ID.fullmatch(request.device_id):
                raise UsageError(f"{request.device_id!r} is no name for a device")
            description = _description(request.description)
            _check_sandbox(request.device_id, description, self._farm.settings.sandbox)
            session = await self._run(
                self._farm.devices.connect, request.device_id, description, request.instance
            )
            _log.info("device %s connected from %s", request.device_id, context.peer())
            return device_pb2.RegisterReply(
                session=session, heartbeat_interval_ms=self._heartbeat_interval_ms()
            )

    async def Heartbeat(  # noqa: N802
        self, request: device_pb2.HeartbeatRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> device_pb2.HeartbeatReply:
        async with self._session(request.session, context) as (device, session):
            ready = request.state == device_pb2.DEVICE_STATE_READY
            if request.state == device_pb2.DEVICE_STATE_UNHEALTHY:
                _log.warning("device %s cannot measure: %s", device, request.message)
            await self._run(
                functools.partial(self._farm.devices.heartbeat, device, session, draining=not ready)
            )
            revoked = await self._run(
                self._farm.measurements.renew_held, device, list(request.leases)
            )
            return device_pb2.HeartbeatReply(revoked=revoked)

    async def Lease(  # noqa: N802
        self, request: device_pb2.LeaseRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> device_pb2.LeaseReply:
        async with self._session(request.session, context) as (device, session):
            loop = asyncio.get_running_loop()
            end = loop.time() + min(request.wait_ms / 1000, LONGEST_WAIT_S)
            while True:
                wait_s = max(0.0, min(end - loop.time(), _SLICE_S))
                batch = await self._lease(device, session, wait_s)
                if batch is not None:
                    return device_pb2.LeaseReply(batch=self._signed(batch))
                if loop.time() >= end or self.stopping.is_set():
                    return device_pb2.LeaseReply()

    async def Report(  # noqa: N802
        self, request: device_pb2.ReportRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> device_pb2.ReportReply:
        async with self._session(request.session, context) as (device, session):
            result = _result(request.result)
            report = await self._run(
                self._farm.measurements.report,
                device,
                session,
                request.lease,
                request.fence,
                result,
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
        async with self._session(request.session, context) as (device, session):
            await self._run(self._farm.devices.heartbeat, device, session)
            try:
                path = await self._run(self._farm.blobs.path, request.sha256)
            except NotFoundError as error:
                await context.abort(grpc.StatusCode.OUT_OF_RANGE, error.message)
            with path.open("rb") as file:
                file.seek(request.offset)
                while data := await self._run(file.read, channel.CHUNK_BYTES):
                    yield device_pb2.BlobChunk(data=data)

    async def _lease(self, device: str, session: str, wait_s: float) -> Batch | None:
        """One wait for work. Where the device leaves in the middle of it, the batch that the thread
        may still get goes back to the queue at once: nobody is there to measure it."""
        loop = asyncio.get_running_loop()
        waiting = loop.run_in_executor(
            self._waiters, self._farm.measurements.lease, device, session, wait_s
        )
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.add_done_callback(self._hand_back)
            raise

    def _hand_back(self, waiting: asyncio.Future[Batch | None]) -> None:
        if waiting.cancelled() or waiting.exception() is not None:
            return
        batch = waiting.result()
        if batch is not None:
            self._others.submit(self._farm.measurements.hand_back, batch)

    def _signed(self, batch: Batch) -> device_pb2.Batch:
        manifest = batch.manifest.encode()
        return device_pb2.Batch(
            lease=batch.lease.item,
            fence=batch.lease.fence,
            manifest=manifest,
            signature=signing.sign(self._token, manifest),
            deadline_ms=int(self._farm.settings.batch_timeout_s * 1000),
        )

    def _heartbeat_interval_ms(self) -> int:
        """Often enough that four may be lost before a lease or the device expires."""
        settings = self._farm.settings
        return int(min(settings.lease_s, settings.device_expiry_s) * 1000 / 5)

    async def _run(self, call: Callable[..., _T], *args: Any) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._others, call, *args)

    @contextlib.asynccontextmanager
    async def _session(
        self, session: device_pb2.Session, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[tuple[str, str]]:
        """The device's id and session; tells a stale session whether to register again."""
        async with _answering(context):
            try:
                yield session.device_id, session.id
            except StaleSessionError as error:
                if await self._run(self._is_fenced, session.device_id):
                    await context.abort(grpc.StatusCode.ABORTED, error.message)
                await context.abort(grpc.StatusCode.NOT_FOUND, error.message)

    def _is_fenced(self, device_id: str) -> bool:
        """Whether another session of the device is open."""
        try:
            return bool(self._farm.devices.get(device_id).session)
        except NotFoundError:
            return False


@contextlib.asynccontextmanager
async def _answering(context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    """Turns errors into statuses; a defect is logged here and told without its words."""
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except FarrierError as error:
        await context.abort(_status(error), str(error))
    except Exception:
        _log.exception("a call of %s failed", context.peer())
        await context.abort(grpc.StatusCode.INTERNAL, "a defect of the broker: see its log")


def _status(error: FarrierError) -> grpc.StatusCode:
    match error:
        case ServiceError() | StorageError():
            return grpc.StatusCode.UNAVAILABLE  # agents try again
        case UsageError():
            return grpc.StatusCode.INVALID_ARGUMENT
        case _:
            return grpc.StatusCode.FAILED_PRECONDITION


def _check_sandbox(device_id: str, description: Mapping[str, Any], required: str) -> None:
    """Raises UsageError where the farm requires layers that the device's sandbox lacks."""
    missing = devices.missing_layers(required, description)
    if missing:
        raise UsageError(
            f"this farm requires a sandbox with {required}; that of {device_id} lacks "
            f"{', '.join(missing)}",
            hint="FARRIER_SANDBOX of the broker says what is required",
        )


def _description(description: device_pb2.Description) -> dict[str, Any]:
    """As the farm stores it: the fields of the message, by name."""
    fields = {f.name: getattr(description, f.name) for f in description.DESCRIPTOR.fields}
    return {**fields, "features": list(description.features)}


def _result(text: bytes) -> MeasureResult:
    try:
        return result_from_json(text.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the result is malformed: {error}") from None
