"""The loops of the agent, each in a thread: one leases batches, measures and reports; one sends
heartbeats; a third renews the sign of life as long as the heartbeats are on time."""

from __future__ import annotations

import collections
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from farrier_device import describe, logs, measurement
from farrier_device.adapters import Adapter
from farrier_device.alive import RENEWED_S
from farrier_device.blobstore import BlobStore
from farrier_device.connection import (
    CALL_TIMEOUT_S,
    AgentError,
    Connection,
    RefusedError,
    UnreachableError,
)
from farrier_device.cooling import Cooling
from farrier_device.describe import MachineDescription
from farrier_device.identity import Identity
from farrier_device.measurement import Blame, DeviceFault, MeasureResult
from farrier_device.outbox import Outbox, PendingResult
from farrier_device.protocol import device_pb2
from farrier_device.runners.any_runner import AnyRunner
from farrier_device.sandbox import SandboxError
from farrier_device.session import Backoff, Session
from farrier_device.work import BatchWorker, Held

log = logging.getLogger(__name__)

# The time for which a draining agent tries to deliver; then results wait on the disk.
_DRAIN_REPORT_S = 10.0
# A heartbeat may wait for a registration by the other loop, find the session lost, register, and
# beat again.
_BEAT_S = 4 * CALL_TIMEOUT_S
_LATE_S = 3.0  # The time for a thread to be woken on a busy machine.
_MENDABLE = (DeviceFault.BROKEN, DeviceFault.NO_SPACE)


class Measuring(Protocol):
    """A measuring device other than this machine's processor, such as a GPU."""

    def machine(self) -> MachineDescription:
        """Return the description of the measuring device."""
        ...


class Agent:
    """An agent for one device of a farm. `run` must be called by one thread only; `drain` may be
    called by any thread."""

    def __init__(
        self,
        identity: Identity,
        description: device_pb2.Description,
        connection: Connection,
        store: BlobStore,
        outbox: Outbox,
        runner: AnyRunner,
        alive: Callable[[], None] = lambda: None,
        cooling: Cooling | None = None,
    ) -> None:
        """Create an agent. `alive` is called about every second as long as the heartbeat thread
        works, even if the broker cannot be reached."""
        self._alive = alive
        self._cooling = cooling or Cooling()
        self._connection = connection
        self._outbox = outbox
        self._runner = runner
        self._identity = identity
        self._session = Session(connection, identity, description)
        self._held: Held | None = None
        self._trouble = ""  # The reason why it cannot measure now.
        self._patience = Backoff(1.0, 60.0)
        self._draining = threading.Event()
        self._bench = BatchWorker(
            connection, self._session, identity, store, runner, self._draining
        )
        self._stop_polling: Callable[[], object] = lambda: None
        self._beat_now = threading.Event()
        self._finished = threading.Event()
        # The time by which the heartbeat loop has to come round, or it hangs.
        self._back_by = time.monotonic() + _BEAT_S
        self._fatal: AgentError | None = None

    @property
    def draining(self) -> bool:
        return self._draining.is_set()

    def drain(self) -> None:
        """Stop taking batches; `run` returns when the present batch is measured and reported."""
        self._draining.set()
        self._beat_now.set()
        self._stop_polling()

    def run(self) -> None:
        """Take and measure batches until drained. Raises AgentError for an error that only an
        operator can fix."""
        heart = threading.Thread(target=self._beat, name="farrier-heartbeat", daemon=True)
        pulse = threading.Thread(target=self._live, name="farrier-pulse", daemon=True)
        heart.start()
        pulse.start()
        try:
            self._work()
        finally:
            self._finished.set()
            self._beat_now.set()
            heart.join()
            pulse.join()

    def _live(self) -> None:
        """Renew the sign of life as long as heartbeats are on time."""
        while True:
            if time.monotonic() < self._back_by:
                self._alive()
            if self._finished.wait(RENEWED_S):
                return

    def _work(self) -> None:
        backoff = Backoff(0.2, 10.0)
        reachable = True
        while not self.draining:
            try:
                self._deliver()
                if self._mended():
                    self._cooling.wait(self._draining)
                    self._take(self._next_batch())
                if not reachable:
                    log.info("the broker answers again")
                reachable = True
                backoff.reset()
            except UnreachableError as error:
                if reachable:
                    log.warning("the broker cannot be reached (%s); trying again", error)
                reachable = False
                self._draining.wait(backoff.next_s())
            self._check_fatal()
        self._deliver_the_last()
        self._check_fatal()

    def _next_batch(self) -> device_pb2.Batch | None:
        def lease(session: device_pb2.Session) -> device_pb2.LeaseReply:
            return self._connection.lease(session, self._polling)

        reply = self._session.call(lease)
        return reply.batch if reply.HasField("batch") else None

    def _polling(self, stop: Callable[[], object]) -> None:
        self._stop_polling = stop
        if self.draining:  # It began to drain before there was a wait to stop.
            stop()

    def _take(self, batch: device_pb2.Batch | None) -> None:
        """Measure a batch and put the result into the outbox."""
        if batch is None:
            return
        with logs.about(batch=batch.lease):
            self._measure(Held(batch))

    def _measure(self, held: Held) -> None:
        batch = held.batch
        self._held = held
        try:
            self._cooling.begin()
            result = self._bench.measure(held)
            result = dataclasses.replace(result, hot=self._cooling.verdict())
            if held.revoked:
                log.info("batch %s was revoked", batch.lease)
                return
            log.info("batch %s: %s", batch.lease, _summary(result))
            self._outbox.add(PendingResult(batch.lease, batch.fence, measurement.to_json(result)))
        finally:
            self._held = None
        # The farm judges a fault that may be the library's, because it can ask other devices.
        if result.fault in _MENDABLE and result.blame is Blame.DEVICE:
            self._trouble = result.message

    def _deliver(self) -> None:
        """Report the results in the outbox to the broker."""
        for pending in self._outbox.waiting():

            def report(
                session: device_pb2.Session, pending: PendingResult = pending
            ) -> device_pb2.ReportReply:
                result = pending.result.encode()
                signature = self._identity.signature(pending.lease, pending.fence, result)
                return self._connection.report(
                    device_pb2.ReportRequest(
                        session=session,
                        lease=pending.lease,
                        fence=pending.fence,
                        result=result,
                        signature=signature,
                    )
                )

            try:
                reply = self._session.call(report)
                if reply.acceptance == device_pb2.ACCEPTANCE_STALE:
                    log.info(
                        "batch %s was given to another device: its result is dropped", pending.lease
                    )
            except RefusedError as error:
                log.warning("the broker rejects the result of %s: %s", pending.lease, error)
            self._outbox.delivered(pending)

    def _deliver_the_last(self) -> None:
        backoff = Backoff(0.2, 2.0)
        deadline = time.monotonic() + _DRAIN_REPORT_S
        while self._outbox.waiting() and self._fatal is None:
            try:
                self._deliver()
            except UnreachableError:
                if time.monotonic() > deadline:
                    log.warning(
                        "the broker cannot be reached: unsent results are kept on "
                        "disk until the next start"
                    )
                    return
                time.sleep(backoff.next_s())

    def _mended(self) -> bool:
        """Return whether the device can take a batch. After a fault of the device, first wait,
        longer after each fault in a row, and then check whether its sandbox starts. Return False if
        it does not, or if the agent drains."""
        if not self._trouble:
            self._patience.reset()
            return True
        self._draining.wait(self._patience.next_s())
        try:
            self._runner.sandbox_level()
        except SandboxError as error:
            self._trouble = str(error)
            return False
        self._trouble = ""
        return not self.draining

    def _beat(self) -> None:
        while not self._finished.is_set():
            self._back_by = time.monotonic() + _BEAT_S
            try:
                reply = self._session.call(self._heartbeat)
            except UnreachableError:
                reply = device_pb2.HeartbeatReply()  # The other loop waits, and logs the error.
            except AgentError as error:
                self._give_up(error)
                return
            held = self._held
            if held is not None:
                held.check_deadline()
                if held.batch.lease in reply.revoked:
                    held.revoke()
            self._back_by = time.monotonic() + self._session.heartbeat_s + _LATE_S
            self._beat_now.wait(self._session.heartbeat_s)
            self._beat_now.clear()

    def _heartbeat(self, session: device_pb2.Session) -> device_pb2.HeartbeatReply:
        held = self._held
        leases = [pending.lease for pending in self._outbox.waiting()]
        if held is not None and held.batch.lease not in leases:
            leases.append(held.batch.lease)
        if self.draining:
            state = device_pb2.DEVICE_STATE_DRAINING
        elif self._trouble:
            state = device_pb2.DEVICE_STATE_UNHEALTHY
        else:
            state = device_pb2.DEVICE_STATE_READY
        return self._connection.heartbeat(
            device_pb2.HeartbeatRequest(
                session=session,
                state=state,
                message=self._trouble or self._cooling.message,
                leases=leases,
                health=self._health(),
            )
        )

    def _health(self) -> device_pb2.Health:
        fields = dataclasses.asdict(self._cooling.look())
        return device_pb2.Health(waits=self._cooling.message, **fields)

    def _give_up(self, error: AgentError) -> None:
        """End the agent with this error: revoke the lease that it holds, and drain. The heartbeat
        thread calls this method."""
        self._fatal = error
        held = self._held
        if held is not None:
            held.revoke()
        self.drain()

    def _check_fatal(self) -> None:
        if self._fatal is not None:
            raise self._fatal


def describe_device(
    agent_version: str,
    runner: AnyRunner,
    machine: str = "",
    engines: Mapping[str, str] | None = None,
    adapters: Sequence[Adapter] = (),
    measuring: Measuring | None = None,
) -> device_pb2.Description:
    """Return the description of this machine for the broker, with the machine name that the
    operator states and the engines that the agent offers. With `measuring`, the description is that
    of the adapter or board that measures in place of the processor. Raises SandboxError if nothing
    can be measured."""
    here = describe.describe() if measuring is None else measuring.machine()
    return device_pb2.Description(
        **dataclasses.asdict(here),
        runner=runner.kind,
        sandbox=runner.sandbox_level(),
        agent_version=agent_version,
        machine=machine,
        engines=engines or {},
        kinds=sorted(runner.kinds),
        adapters=[
            device_pb2.Adapter(
                name=adapter.name,
                driver=adapter.driver,
                emulated=adapter.is_emulated,
                features=adapter.features,
                limits=adapter.limits,
            )
            for adapter in adapters
        ],
    )


def _summary(result: MeasureResult) -> str:
    if result.fault is not None:
        return f"{result.fault}: {result.message}"
    counts = collections.Counter(str(candidate.status) for candidate in result.results)
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "empty"
