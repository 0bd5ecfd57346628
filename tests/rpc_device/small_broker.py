"""A whole broker in memory: real gRPC, one device, and faults on demand."""

from __future__ import annotations

import collections
import concurrent.futures
import hashlib
import queue
import threading
import time
from pathlib import Path

import grpc

from farrier_device.measurement import MeasureRequest, MeasureResult, result_from_json, to_json
from farrier_device.protocol import channel, device_pb2, device_pb2_grpc, signing
from tests.waiting import wait_until

TLS = Path(__file__).parent / "tls"


class SmallBroker(device_pb2_grpc.BrokerServicer):
    """A broker that leases the batches of `submit` and keeps the reports.

    `faults[method]` is a list of functions of the context, one a call, run before the call; those
    in `after` run when its effect is recorded.
    """

    def __init__(self, token: str = "right token", *, tls: bool = False) -> None:
        self.token = token
        self.tls = tls
        self.port = 0
        self.sessions: dict[str, str] = {}  # device id: session
        self.registered: list[device_pb2.RegisterRequest] = []
        self.heartbeats: list[device_pb2.HeartbeatRequest] = []
        self.blobs: dict[str, bytes] = {}
        self.offsets: list[int] = []  # The offsets of the calls of GetBlob.
        self.asked: list[str] = []  # The sha256 of each of these calls.
        self.revoked: set[str] = set()
        self.stale: set[str] = set()
        self.reports: dict[tuple[str, int], MeasureResult] = {}
        self.report_calls = 0
        self.faults: dict[str, list] = collections.defaultdict(list)
        self.after: dict[str, list] = collections.defaultdict(list)
        self._batches: queue.Queue[device_pb2.Batch] = queue.Queue()
        self._opened = 0
        self._stopping = threading.Event()

    def start(self) -> None:
        self._stopping.clear()
        workers = concurrent.futures.ThreadPoolExecutor(8)
        self._server = grpc.server(workers, options=channel.SERVER_OPTIONS)
        device_pb2_grpc.add_BrokerServicer_to_server(self, self._server)
        address = f"localhost:{self.port}" if self.tls else f"127.0.0.1:{self.port}"
        if self.tls:
            pair = ((TLS / "key.pem").read_bytes(), (TLS / "certificate.pem").read_bytes())
            self.port = self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            self.port = self._server.add_insecure_port(address)
        self._server.start()

    def stop(self) -> None:
        self._stopping.set()
        self._server.stop(0).wait()

    def forget(self) -> None:
        """Every session is lost, as after a restart."""
        self.sessions.clear()

    @property
    def address(self) -> str:
        return f"{'localhost' if self.tls else '127.0.0.1'}:{self.port}"

    def offer(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        self.blobs[sha256] = data
        return sha256

    def submit(
        self, lease: str, request: MeasureRequest, *, signature: bytes | None = None, **fields: int
    ) -> None:
        manifest = to_json(request).encode()
        if signature is None:
            signature = signing.sign(self.token, manifest)
        fields.setdefault("fence", 1)
        batch = device_pb2.Batch(lease=lease, manifest=manifest, signature=signature, **fields)
        self._batches.put(batch)

    def result(self, lease: str, fence: int = 1) -> MeasureResult:
        wait_until(lambda: (lease, fence) in self.reports)
        return self.reports[lease, fence]

    def Register(self, request, context):  # noqa: N802
        self._enter("Register", context)
        self._opened += 1
        self.sessions[request.device_id] = f"session-{self._opened}"
        self.registered.append(request)
        return device_pb2.RegisterReply(
            session=self.sessions[request.device_id], heartbeat_interval_ms=100
        )

    def Heartbeat(self, request, context):  # noqa: N802
        self._enter("Heartbeat", context, request.session)
        self.heartbeats.append(request)
        return device_pb2.HeartbeatReply(revoked=self.revoked & set(request.leases))

    def Lease(self, request, context):  # noqa: N802
        self._enter("Lease", context, request.session)
        end = time.monotonic() + request.wait_ms / 1000
        while context.is_active() and time.monotonic() < end and not self._stopping.is_set():
            try:
                batch = self._batches.get(timeout=0.05)
            except queue.Empty:
                continue
            if context.is_active():
                return device_pb2.LeaseReply(batch=batch)
            self._batches.put(batch)
        return device_pb2.LeaseReply()

    def Report(self, request, context):  # noqa: N802
        self._enter("Report", context, request.session)
        self.report_calls += 1
        if request.lease in self.stale:
            return device_pb2.ReportReply(acceptance=device_pb2.ACCEPTANCE_STALE)
        result = result_from_json(request.result.decode())
        self.reports.setdefault((request.lease, request.fence), result)
        if self.after["Report"]:
            self.after["Report"].pop(0)(context)
        return device_pb2.ReportReply(acceptance=device_pb2.ACCEPTANCE_ACCEPTED)

    def GetBlob(self, request, context):  # noqa: N802
        self._enter("GetBlob", context, request.session)
        self.offsets.append(request.offset)
        self.asked.append(request.sha256)
        if request.sha256 not in self.blobs:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, "blob")
        data = self.blobs[request.sha256]
        for start in range(request.offset, len(data), 4096):
            if start > request.offset and self.after["GetBlob"]:
                self.after["GetBlob"].pop(0)(context)
            yield device_pb2.BlobChunk(data=data[start : start + 4096])

    def _enter(self, method, context, session=None) -> None:
        metadata = dict(context.invocation_metadata())
        if metadata.get("authorization") != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
        if self.faults[method]:
            self.faults[method].pop(0)(context)
        if session is not None and self.sessions.get(session.device_id) != session.id:
            is_registered = session.device_id in self.sessions
            code = grpc.StatusCode.ABORTED if is_registered else grpc.StatusCode.NOT_FOUND
            context.abort(code, "session")


def unavailable(context) -> None:
    """The connection breaks."""
    context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
