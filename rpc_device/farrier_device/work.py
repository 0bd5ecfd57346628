"""The agent's work on a leased batch: check the manifest, fetch the blobs, measure."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator

from farrier_device import measurement
from farrier_device.blobstore import BlobMismatchError, BlobStore, NoSpaceError
from farrier_device.connection import BrokerBlobError, Connection, UnreachableError
from farrier_device.identity import Identity
from farrier_device.measurement import (
    Blame,
    DeviceFault,
    MeasureRequest,
    MeasureResult,
    RivalResult,
)
from farrier_device.protocol import device_pb2
from farrier_device.runners.any_runner import AnyRunner
from farrier_device.runners.baselines import unraced
from farrier_device.session import Backoff, Session


class Held:
    """A lease that the agent holds on a batch. When the lease is revoked or its deadline has
    passed, `cancelled` is set, which ends the transfers and the measurement of the batch."""

    def __init__(self, batch: device_pb2.Batch) -> None:
        self.batch = batch
        self.cancelled = threading.Event()
        self.revoked = False
        self._stop_transfer: Callable[[], object] = lambda: None
        self._deadline = time.monotonic() + batch.deadline_ms / 1000 if batch.deadline_ms else None

    def revoke(self) -> None:
        """Mark the lease as lost, so that its result will not be reported."""
        self.revoked = True
        self._cancel()

    def check_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._cancel()

    def fetching(self, stop: Callable[[], object]) -> None:
        """Register `stop`, the function that cancels the transfer which is about to start. If the
        lease was cancelled already, call `stop` at once."""
        self._stop_transfer = stop
        if self.cancelled.is_set():  # It was cancelled before there was a transfer to stop.
            stop()

    def _cancel(self) -> None:
        self.cancelled.set()
        self._stop_transfer()


class BatchWorker:
    """The worker that measures batches, with a runner and the store for their blobs."""

    def __init__(
        self,
        connection: Connection,
        session: Session,
        identity: Identity,
        store: BlobStore,
        runner: AnyRunner,
        draining: threading.Event,
    ) -> None:
        self._connection = connection
        self._session = session
        self._identity = identity
        self._store = store
        self._runner = runner
        self._draining = draining

    def measure(self, held: Held) -> MeasureResult:
        """Return the result of a batch. A problem with the manifest, the blobs or the disk is a
        fault in the result, with the blame for it.

        Raises only errors that end the agent.
        """
        manifest = held.batch.manifest
        if not self._identity.verifies(held.batch):
            return _broken(
                Blame.AGENT,
                "the manifest is not signed with this device's token, so it was not run; make "
                "sure that agent and broker have the same token, and restart the agent",
            )
        try:
            request = measurement.request_from_json(manifest.decode(), whole=True)
        except ValueError as error:
            return _broken(
                Blame.AGENT,
                f"this agent cannot read the request: {error}; update the agent to the farm's "
                "version",
            )
        begin = time.monotonic()
        with self._store.holding(request.blobs()):
            fault = self._fetch(request, held)
            transfer_s = time.monotonic() - begin
            if fault is None:
                result = self._runner.measure(request, self._store, held.cancelled)
            elif request.rival is not None and fault.fault is DeviceFault.NO_SPACE:
                # A device need not have room for a rival's model.
                result = unraced(request, RivalResult(request.rival.engine, message=fault.message))
            else:
                result = fault
        return dataclasses.replace(result, transfer_s=transfer_s)

    def _fetch(self, request: MeasureRequest, held: Held) -> MeasureResult | None:
        """Fetch the missing blobs of a request; return a result with a fault if that fails,
        otherwise None."""
        backoff = Backoff(0.2, 5.0)
        unreachable = False
        # A blob that arrived with wrong bytes: the remains of an earlier transfer may be to blame.
        again = ""
        missing = [name for name in sorted(request.blobs()) if not self._here(name)]
        while missing:
            if held.cancelled.is_set() or (self._draining.is_set() and unreachable):
                return MeasureResult(fault=DeviceFault.LOST, message="the batch was cancelled")
            try:
                self._session.call(lambda session: self._receive(session, missing[-1], held))
                missing.pop()
                unreachable = False
                backoff.reset()
            except UnreachableError:
                unreachable = True
                held.cancelled.wait(backoff.next_s())
            except NoSpaceError as error:
                return MeasureResult(fault=DeviceFault.NO_SPACE, message=str(error))
            except BlobMismatchError as error:
                if again == missing[-1]:
                    return _broken(Blame.FARM, str(error))
                again = missing[-1]
            except (BrokerBlobError, LookupError) as error:
                return _broken(Blame.FARM, str(error))
            except OSError as error:
                return _broken(Blame.DEVICE, str(error))
        return None

    def _here(self, name: str) -> bool:
        try:
            return self._store.has(name)
        except LookupError:
            return False  # The name is not a digest, which `_receive` reports.

    def _receive(self, session: device_pb2.Session, name: str, held: Held) -> None:
        def chunks_from(offset: int) -> Iterator[bytes]:
            return self._connection.blob(session, name, offset, held.fetching)

        self._store.receive(name, chunks_from)


def _broken(blame: Blame, message: str) -> MeasureResult:
    return MeasureResult(fault=DeviceFault.BROKEN, blame=blame, message=message)
