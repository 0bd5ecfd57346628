"""The broker over a real channel: sessions, leases, reports, blobs, and what goes wrong."""

from __future__ import annotations

import dataclasses
import json
import random
import threading
import time

import grpc
import pytest

from farrier_device.describe import describe
from farrier_device.measurement import (
    Argument,
    Candidate,
    CandidateResult,
    CodeObject,
    DeviceFault,
    Launch,
    MeasureRequest,
    MeasureResult,
    Role,
    Status,
    request_from_json,
    to_json,
)
from farrier_device.protocol import channel, device_pb2, signing
from tests.here import HERE, TARGET

REQUEST = MeasureRequest(
    (CodeObject("a" * 64),), (Candidate((Launch("k"),), (Argument(Role.SCRATCH, 64),)),)
)
RESULT = MeasureResult((CandidateResult(Status.OK, (100, 101, 99), 1e-7),), sandbox="none")


def lease(stub, session, wait_s: float | None = None):
    """The next batch, however long it takes; or None where there is none for `wait_s`."""
    wait_ms = int(1000 * (5.0 if wait_s is None else wait_s))
    while True:
        reply = stub.Lease(device_pb2.LeaseRequest(session=session, wait_ms=wait_ms))
        if reply.HasField("batch"):
            return reply.batch
        if wait_s is not None:
            return None


def report(stub, session, batch, result: MeasureResult = RESULT):
    return stub.Report(
        device_pb2.ReportRequest(
            session=session, lease=batch.lease, fence=batch.fence, result=to_json(result).encode()
        )
    ).acceptance


def beat(stub, session, *leases: str, state=device_pb2.DEVICE_STATE_READY) -> list[str]:
    request = device_pb2.HeartbeatRequest(session=session, state=state, leases=leases)
    return list(stub.Heartbeat(request).revoked)


def refusal(code: grpc.StatusCode):
    return pytest.raises(grpc.RpcError, check=lambda error: error.code() is code)


def test_wrong_tokens_are_refused(broker):
    for token in ("wrong", ""):
        stub = broker.stub(token)
        with refusal(grpc.StatusCode.UNAUTHENTICATED):
            stub.register("board")
        with refusal(grpc.StatusCode.UNAUTHENTICATED):
            list(stub.GetBlob(device_pb2.GetBlobRequest(sha256="a" * 64)))
    assert broker.farm.devices.list() == []


def test_a_batch_goes_out_signed_and_its_result_comes_back(broker):
    stub = broker.stub()
    session = stub.register("board", agent_version="7")
    (device,) = broker.farm.devices.list()
    assert device.description["agent_version"] == "7"
    assert device.description["cores"] == 2
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    assert batch.lease == batch_id
    assert batch.deadline_ms == 900_000
    assert signing.verify(broker.token, batch.manifest, batch.signature)
    assert not signing.verify("another token", batch.manifest, batch.signature)
    assert request_from_json(batch.manifest.decode()) == REQUEST
    canonical = json.dumps(json.loads(batch.manifest), sort_keys=True, separators=(",", ":"))
    assert batch.manifest == canonical.encode()
    assert report(stub, session, batch) == device_pb2.ACCEPTANCE_ACCEPTED
    result = broker.farm.measurements.wait(batch_id, 1)
    assert result.results == RESULT.results
    assert result.device == "board"


def test_a_report_counts_once(broker):
    stub = broker.stub()
    session = stub.register("board")
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    assert report(stub, session, batch) == device_pb2.ACCEPTANCE_ACCEPTED
    assert report(stub, session, batch) == device_pb2.ACCEPTANCE_ACCEPTED
    session = stub.register("board")  # The answer was lost with the connection.
    assert report(stub, session, batch) == device_pb2.ACCEPTANCE_ACCEPTED
    assert broker.farm.devices.get("board").measured == 1
    assert broker.farm.measurements.wait(batch_id, 1).results == RESULT.results


def test_a_stale_fence_is_dropped(broker):
    stub = broker.stub()
    session = stub.register("board")
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    batch.fence += 1
    assert report(stub, session, batch) == device_pb2.ACCEPTANCE_STALE
    assert broker.farm.measurements.wait(batch_id, 0) is None


def test_nothing_to_measure(broker):
    stub = broker.stub()
    session = stub.register("board")
    begun = time.monotonic()
    assert lease(stub, session, 0.3) is None
    assert 0.25 < time.monotonic() - begun < 3
    waiting = threading.Timer(0.3, broker.farm.measurements.submit, (REQUEST, HERE))
    waiting.start()
    assert lease(stub, session) is not None
    waiting.join()


def test_a_device_gets_only_what_it_can_run(broker):
    stub = broker.stub()
    session = stub.register("pi", arch="aarch64", cpu="cortex-a72", features=["asimd", "fp"])
    broker.farm.measurements.submit(REQUEST, HERE)
    assert lease(stub, session, 0.2) is None


def test_a_newer_session_fences_out_the_older(broker):
    stub = broker.stub()
    old = stub.register("board")
    broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, old)
    new = stub.register("board")
    calls = (
        lambda: beat(stub, old, batch.lease),
        lambda: lease(stub, old, 0),
        lambda: report(stub, old, batch),
        lambda: list(stub.GetBlob(device_pb2.GetBlobRequest(session=old, sha256="a" * 64))),
    )
    for call in calls:
        with refusal(grpc.StatusCode.ABORTED):
            call()
    assert beat(stub, new) == []


def test_a_process_that_registers_again_keeps_its_session(broker):
    """A request that it made long ago, and that is served only now, does not fence it out."""
    stub = broker.stub()
    session = stub.register("board", "this process")
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    assert stub.register("board", "this process", cpu="znver5") == session
    device = broker.farm.devices.get("board")
    assert (device.lease, device.faults, device.description["cpu"]) == (batch_id, 0, "znver5")
    assert beat(stub, session, batch.lease) == []
    assert stub.register("board", "another process") != session
    assert broker.farm.devices.get("board").faults == 1
    with refusal(grpc.StatusCode.ABORTED):
        beat(stub, session)


def test_unknown_sessions_are_to_register(broker):
    stub = broker.stub()
    for device_id in ("board", ""):
        with refusal(grpc.StatusCode.NOT_FOUND):
            beat(stub, device_pb2.Session(device_id=device_id, id="nothing"))


def test_a_device_with_too_weak_a_sandbox_gets_no_session(farm_settings, start_broker):
    required = dataclasses.replace(farm_settings, sandbox="seccomp+landlock")
    stub = start_broker(required).stub()
    for level in ("", "rlimits", "seccomp+rlimits"):
        with refusal(grpc.StatusCode.INVALID_ARGUMENT):
            stub.register("board", sandbox=level)
    assert stub.register("board", sandbox="seccomp+landlock+rlimits").id


def test_a_broker_that_requires_more_ends_the_sessions_of_weak_devices(farm_settings, start_broker):
    stub = start_broker(farm_settings).stub()
    weak = stub.register("weak", "w", sandbox="rlimits")
    strong = stub.register("strong", "s", sandbox="seccomp+landlock+rlimits")
    required = dataclasses.replace(farm_settings, sandbox="seccomp+landlock")
    stub = start_broker(required).stub()
    assert beat(stub, strong) == []
    for call in (lambda: beat(stub, weak), lambda: lease(stub, weak, 0)):
        with refusal(grpc.StatusCode.NOT_FOUND):
            call()
    with refusal(grpc.StatusCode.NOT_FOUND):
        beat(stub, device_pb2.Session(device_id="weak", id=""))
    with refusal(grpc.StatusCode.INVALID_ARGUMENT):
        stub.register("weak", "w", sandbox="rlimits")
    mended = stub.register("weak", "w", sandbox="seccomp+landlock")
    assert mended != weak
    assert beat(stub, mended) == []


@pytest.mark.parametrize(("lease_s", "expiry_s", "ms"), [(30, 20, 4000), (5, 20, 1000)])
def test_heartbeats_come_five_times_before_anything_expires(
    farm_settings, start_broker, lease_s, expiry_s, ms
):
    settings = dataclasses.replace(farm_settings, lease_s=lease_s, device_expiry_s=expiry_s)
    machine = device_pb2.Description(**dataclasses.asdict(describe()))
    request = device_pb2.RegisterRequest(device_id="board", instance="i", description=machine)
    assert start_broker(settings).stub().Register(request).heartbeat_interval_ms == ms


def test_names_that_are_none(broker):
    stub = broker.stub()
    for name in ("", "a b", "../x", "x" * 101, "é"):
        with refusal(grpc.StatusCode.INVALID_ARGUMENT):
            stub.register(name)


def test_malformed_results_are_refused(broker):
    stub = broker.stub()
    session = stub.register("board")
    broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    for text in (b"", b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"results":[{"status":"?"}]}'):
        request = device_pb2.ReportRequest(
            session=session, lease=batch.lease, fence=batch.fence, result=text
        )
        with refusal(grpc.StatusCode.INVALID_ARGUMENT):
            stub.Report(request)
    assert report(stub, session, batch) == device_pb2.ACCEPTANCE_ACCEPTED


def test_a_result_is_of_its_batch(broker):
    stub = broker.stub()
    session = stub.register("board")
    broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    (ran,) = RESULT.results
    for results in ((), (ran, ran), (dataclasses.replace(ran, parts_ns=((1, 2, 3),)),)):
        with refusal(grpc.StatusCode.INVALID_ARGUMENT):
            report(stub, session, batch, MeasureResult(results))
    assert report(stub, session, batch) == device_pb2.ACCEPTANCE_ACCEPTED


def test_a_job_and_an_agent_may_be_newer_than_the_broker(broker):
    """The job's request reaches the agent unchanged; of the result the known part is read."""
    stub = broker.stub()
    session = stub.register("board")
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    newer = json.dumps({**json.loads(to_json(REQUEST)), "newer": [1]})
    broker.farm.client.command("HSET", f"farrier:batch:item:{batch_id}", "request", newer)
    assert broker.farm.references.are_there(REQUEST.code[0].blob)
    batch = lease(stub, session)
    assert batch.manifest == newer.encode()
    assert signing.verify(broker.token, batch.manifest, batch.signature)
    result = json.loads(to_json(RESULT))
    result["newer"] = result["results"][0]["newer"] = {"x": 1}
    request = device_pb2.ReportRequest(
        session=session, lease=batch.lease, fence=batch.fence, result=json.dumps(result).encode()
    )
    assert stub.Report(request).acceptance == device_pb2.ACCEPTANCE_ACCEPTED
    assert broker.farm.measurements.wait(batch_id, 1).results == RESULT.results


@pytest.fixture
def hasty(farm_settings):
    """Settings under which leases and devices expire within a second."""
    return dataclasses.replace(farm_settings, lease_s=0.8, device_expiry_s=0.8)


def test_heartbeats_keep_a_lease_and_silence_loses_it(hasty, start_broker):
    broker = start_broker(hasty)
    stub = broker.stub()
    quiet, busy = stub.register("quiet"), stub.register("busy")
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, quiet)
    for _ in range(6):
        time.sleep(0.25)
        assert beat(stub, quiet, batch.lease) == []
        assert lease(stub, busy, 0) is None
    # No more heartbeats: the device is lost, another one gets the batch.
    again = lease(stub, busy)
    assert again.lease == batch_id
    assert again.fence > batch.fence
    assert broker.farm.devices.get("quiet").state == "offline"
    assert beat(stub, quiet, batch.lease) == [batch.lease]
    assert beat(stub, busy, again.lease) == []
    assert report(stub, quiet, batch) == device_pb2.ACCEPTANCE_STALE
    assert report(stub, busy, again) == device_pb2.ACCEPTANCE_ACCEPTED


def test_a_cancelled_job_takes_its_batch_back(broker):
    from farrier.options import CompileOptions

    farm = broker.farm
    stub = broker.stub()
    session = stub.register("board")
    job = farm.jobs.submit(farm.blobs.put(b"model"), CompileOptions(target=TARGET))
    farm.measurements.submit(REQUEST, HERE, farm.jobs.lease("worker", 1))
    batch = lease(stub, session)
    assert beat(stub, session, batch.lease) == []
    farm.cancel(job.id)
    assert beat(stub, session, batch.lease) == [batch.lease]
    assert report(stub, session, batch) == device_pb2.ACCEPTANCE_STALE


def test_a_fault_of_the_device_sends_the_batch_on(broker):
    stub = broker.stub()
    first, second = stub.register("one"), stub.register("other")
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, first)
    fault = MeasureResult(fault=DeviceFault.DRIFTED, message="30% slower afterwards")
    assert report(stub, first, batch, fault) == device_pb2.ACCEPTANCE_ACCEPTED
    assert broker.farm.devices.get("one").faults == 1
    assert lease(stub, second).lease == batch_id


def test_a_batch_leased_for_a_caller_that_left_goes_back(broker):
    stub = broker.stub()
    gone, there = stub.register("gone"), stub.register("there")
    with refusal(grpc.StatusCode.DEADLINE_EXCEEDED):
        stub.Lease(device_pb2.LeaseRequest(session=gone, wait_ms=20_000), timeout=0.3)
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    assert lease(stub, there).lease == batch_id


@pytest.mark.parametrize(
    "state", [device_pb2.DEVICE_STATE_DRAINING, device_pb2.DEVICE_STATE_UNHEALTHY]
)
def test_devices_that_take_no_batch_say_so(broker, state):
    stub = broker.stub()
    session = stub.register("board")
    broker.farm.measurements.submit(REQUEST, HERE)
    beat(stub, session, state=state)
    assert broker.farm.devices.get("board").state == "draining"
    assert lease(stub, session, 0) is None
    beat(stub, session)
    assert broker.farm.devices.get("board").state == "idle"
    assert lease(stub, session, 0) is not None


def test_a_device_tells_of_its_heat(broker):
    stub = broker.stub()
    session = stub.register("board")
    assert broker.farm.devices.get("board").health == {}
    reported = device_pb2.Health(celsius=61.5, clock_mhz=1500, throttles=3, waits="to cool")
    stub.Heartbeat(device_pb2.HeartbeatRequest(session=session, health=reported))
    beat(stub, session)  # This agent reports nothing.
    expected = {"celsius": 61.5, "clock_mhz": 1500, "throttles": 3, "waits": "to cool"}
    assert broker.farm.devices.get("board").health == expected


def test_blobs_come_in_chunks_from_any_offset(broker):
    data = random.Random(2).randbytes(2 * channel.CHUNK_BYTES + 12_345)
    sha256 = broker.farm.blobs.put(data)
    stub = broker.stub()
    session = stub.register("board")
    broker.farm.measurements.submit(dataclasses.replace(REQUEST, code=(CodeObject(sha256),)), HERE)
    lease(stub, session)

    def get(sha256: str, offset: int) -> list[bytes]:
        request = device_pb2.GetBlobRequest(session=session, sha256=sha256, offset=offset)
        return [chunk.data for chunk in stub.GetBlob(request)]

    chunks = get(sha256, 0)
    assert max(map(len, chunks)) == channel.CHUNK_BYTES
    assert b"".join(chunks) == data
    assert b"".join(get(sha256, 1_500_001)) == data[1_500_001:]
    assert get(sha256, len(data)) == []
    for unknown in ("0" * 64, "", "../../user.token"):
        with refusal(grpc.StatusCode.OUT_OF_RANGE):
            get(unknown, 0)


def test_tls(farm_settings, start_broker, certificate):
    cert, key = certificate
    broker = start_broker(dataclasses.replace(farm_settings, tls_cert=cert, tls_key=key))
    trusting = grpc.ssl_channel_credentials(cert.read_bytes())
    stub = broker.stub(credentials=trusting)
    assert beat(stub, stub.register("board")) == []
    with refusal(grpc.StatusCode.UNAVAILABLE):
        broker.stub().register("board")  # plaintext


def test_a_restarted_broker_knows_sessions_and_leases(farm_settings, start_broker):
    first = start_broker(farm_settings)
    stub = first.stub()
    session = stub.register("board")
    first.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    first.stop()
    stub = start_broker(farm_settings).stub()
    assert beat(stub, session, batch.lease) == []
    assert report(stub, session, batch) == device_pb2.ACCEPTANCE_ACCEPTED


def test_redis_away_is_unavailable_until_it_is_back(installation, start_broker):
    broker = start_broker(installation.settings)
    stub = broker.stub()
    session = stub.register("board")
    broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    installation.kill_redis()
    with refusal(grpc.StatusCode.UNAVAILABLE):
        beat(stub, session, batch.lease)
    installation.start_redis()
    assert beat(stub, session, batch.lease) == []
    assert report(stub, session, batch) == device_pb2.ACCEPTANCE_ACCEPTED


def test_stop_ends_long_polls(broker):
    stub = broker.stub()
    session = stub.register("board")
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(lease(stub, session, 15)))
    waiting.start()
    time.sleep(0.3)
    begun = time.monotonic()
    broker.stop()
    waiting.join()
    assert answers == [None]
    assert time.monotonic() - begun < 5
