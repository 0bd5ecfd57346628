"""Devices with secrets of their own: who gets one, what it is worth, and what others can do."""

from __future__ import annotations

import dataclasses
import secrets

import grpc
import pytest

from farrier.errors import ConflictError
from farrier_device.measurement import CodeObject
from farrier_device.protocol import device_pb2, signing
from farrier_device.protocol.credentials import Bearer, Enrolled, Invited
from farrier_farm.leases.states import State
from tests.here import HERE
from tests.server.test_broker import REQUEST, RESULT, beat, lease, refusal, report, to_json

DENIED = grpc.StatusCode.PERMISSION_DENIED
UNKNOWN = grpc.StatusCode.UNAUTHENTICATED


def enrol(broker, name: str = "", *, token: str = "", nonce: bytes = b""):
    """Return the broker's answer to a device with an enrolment token, or else the shared one."""
    caller = Invited(token) if token else Bearer(broker.token)
    request = device_pb2.EnrolRequest(device_id=name, nonce=nonce or secrets.token_bytes(32))
    return broker.stub(caller=caller).Enrol(request)


@pytest.fixture
def device(broker):
    """Enrol a device; return its calls, its session and its secret."""

    def make(name: str, **how):
        own = enrol(broker, name, **how)
        stub = broker.stub(caller=Enrolled.by(own.device_id, own.generation, own.secret))
        return stub, stub.register(own.device_id), own.secret

    return make


def signed(stub, session, batch, secret: str, **changes):
    text = to_json(RESULT).encode()
    signature = signing.sign_report(secret, batch.lease, batch.fence, text)
    fields = {"lease": batch.lease, "fence": batch.fence, "result": text, "signature": signature}
    request = device_pb2.ReportRequest(session=session, **{**fields, **changes})
    return stub.Report(request).acceptance


def blob(stub, session, sha256: str, offset: int = 0) -> bytes:
    request = device_pb2.GetBlobRequest(session=session, sha256=sha256, offset=offset)
    return b"".join(chunk.data for chunk in stub.GetBlob(request))


def told(raised) -> str:
    return raised.value.details()


def test_a_rogue_with_the_shared_token_neither_becomes_a_device_nor_ends_its_agent(broker, device):
    stub, session, _ = device("local")
    rogue = broker.stub()
    with refusal(DENIED) as raised:
        rogue.register("local")
    assert "farrier devices add local --again" in told(raised)
    with refusal(DENIED) as raised:
        enrol(broker, "local")
    assert "farrier devices remove local" in told(raised)
    assert beat(stub, session) == []


def test_a_session_that_was_overheard_is_of_no_use_to_others(broker, device):
    stub, session, _ = device("local")
    other, *_ = device("other")
    broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    for rogue, code in ((broker.stub(), grpc.StatusCode.NOT_FOUND), (other, DENIED)):
        with refusal(code):
            beat(rogue, session, batch.lease)
        with refusal(code):
            report(rogue, session, batch)
        with refusal(code):
            lease(rogue, session, 0.1)
        with refusal(code):
            blob(rogue, session, REQUEST.code[0].blob)
    with refusal(DENIED):
        other.register("local")
    assert beat(stub, session, batch.lease) == []


def test_who_has_no_secret_proves_none(broker, device):
    _, session, secret = device("local")
    for caller in (
        Enrolled("local", "", "x"),
        Enrolled.by("local", "another", secret),
        Enrolled.by("local", session.id.partition(".")[2], "another secret"),
        Enrolled.by("elsewhere", session.id.partition(".")[2], secret),
        "Device local",
        "Device",
        "",
    ):
        with refusal(UNKNOWN):
            broker.stub(caller=caller or "None").register("local")


@pytest.mark.parametrize("is_enrolled", [True, False])
def test_a_device_reads_the_blobs_of_its_lease_and_no_others(broker, device, is_enrolled):
    kept = broker.farm.blobs.put(b"a model")
    library = broker.farm.blobs.put(b"a library")
    if is_enrolled:
        stub, session, secret = device("local")
    else:
        stub, secret = broker.stub(), ""
        session = stub.register("old")
    for name in (kept, library):
        with refusal(grpc.StatusCode.OUT_OF_RANGE):
            blob(stub, session, name)
    broker.farm.measurements.submit(dataclasses.replace(REQUEST, code=(CodeObject(library),)), HERE)
    batch = lease(stub, session)
    assert blob(stub, session, library) == b"a library"
    assert blob(stub, session, library, 2) == b"library"
    assert blob(stub, session, library, 2**64 - 1) == b""
    with refusal(grpc.StatusCode.OUT_OF_RANGE) as there:
        blob(stub, session, kept)
    with refusal(grpc.StatusCode.OUT_OF_RANGE) as nowhere:
        blob(stub, session, "0" * 64)
    assert told(there).replace(kept, "") == told(nowhere).replace("0" * 64, "")
    if is_enrolled:
        signed(stub, session, batch, secret)
    else:
        report(stub, session, batch)
    with refusal(grpc.StatusCode.OUT_OF_RANGE):
        blob(stub, session, library)


def test_results_are_signed_by_their_device_and_batches_for_it(broker, device):
    stub, session, secret = device("local")
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    words = (batch.lease, batch.fence, batch.manifest, batch.signature)
    assert signing.verify_batch(secret, *words)
    assert not signing.verify_batch(secret, batch.lease, batch.fence + 1, *words[2:])
    assert not signing.verify(broker.token, batch.manifest, batch.signature)
    other = dataclasses.replace(RESULT, message="other")
    for wrong in (
        {"signature": b""},
        {"result": to_json(other).encode()},
        {"fence": batch.fence + 1},
        {"lease": "another"},
    ):
        with refusal(DENIED):
            signed(stub, session, batch, secret, **wrong)
    with refusal(DENIED):
        signed(stub, session, batch, "another secret")
    assert signed(stub, session, batch, secret) == device_pb2.ACCEPTANCE_ACCEPTED
    result = broker.farm.measurements.wait(batch_id, 1)
    assert (result.device, result.signed) == ("local", True)


def test_a_result_without_a_secret_is_marked_as_unsigned(broker):
    stub = broker.stub()
    session = stub.register("old")
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    report(stub, session, lease(stub, session), dataclasses.replace(RESULT, signed=True))
    assert broker.farm.measurements.wait(batch_id, 1).signed is False


def test_an_enrolment_whose_answer_was_lost_is_repeated(broker):
    invitation = broker.farm.enrolments.invite("pi")
    for how in ({"token": invitation.token}, {"name": "free"}):
        nonce = secrets.token_bytes(32)
        first = enrol(broker, **how, nonce=nonce)
        assert enrol(broker, **how, nonce=nonce) == first
        with refusal(DENIED):
            enrol(broker, **how)
    assert broker.farm.devices.list() == []  # none has connected


def test_tokens_that_do_not_count_say_why(broker):
    invite = broker.farm.enrolments.invite
    used = invite("used").token
    enrol(broker, token=used)
    expired = invite("late", expires_s=0.001).token
    for token, name, code, words in (
        (used, "", DENIED, "was already used by used"),
        (expired, "", DENIED, "expired"),
        (invite("pi").token, "board", DENIED, "is for the device pi, not for board"),
        ("nonsense", "pi", UNKNOWN, "unknown or invalid"),
        ("x" * 5000, "pi", UNKNOWN, "unknown or invalid"),
        (invite("rock").token, "no name", grpc.StatusCode.INVALID_ARGUMENT, "no name"),
    ):
        with refusal(code) as raised:
            enrol(broker, name, token=token)
        assert words in told(raised)
    with refusal(DENIED) as raised:
        enrol(broker, "rock")  # The name waits for the holder of its token.
    assert "--enrol" in told(raised)
    with refusal(grpc.StatusCode.INVALID_ARGUMENT):
        enrol(broker, "new", nonce=b"short")
    with pytest.raises(ConflictError, match="already enrolled"):
        invite("used")


def test_a_device_that_enrols_again_replaces_the_one_before(broker, device):
    stub, session, _ = device("pi")
    token = broker.farm.enrolments.invite("pi", again=True).token
    assert beat(stub, session) == []  # The old secret counts until the token is used.
    again, its_session, _ = device("pi", token=token)
    with refusal(grpc.StatusCode.ABORTED):
        beat(stub, session)
    with refusal(UNKNOWN):
        stub.register("pi")
    assert beat(again, its_session) == []


def test_a_device_that_is_revoked_is_turned_away_at_once(broker, device):
    stub, session, secret = device("bad")
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    broker.farm.enrolments.revoke("bad")
    assert broker.farm.devices.get("bad").state == "revoked"
    [state] = broker.farm.measurements.leases.read(batch_id, "state")
    assert state == State.QUEUED
    for call in (
        lambda: beat(stub, session, batch.lease),
        lambda: signed(stub, session, batch, secret),
        lambda: blob(stub, session, REQUEST.code[0].blob),
    ):
        with refusal(grpc.StatusCode.NOT_FOUND):
            call()
    for rogue in (stub, broker.stub()):
        with refusal(DENIED) as raised:
            rogue.register("bad")
        assert "was revoked" in told(raised)
    with refusal(DENIED):
        enrol(broker, "bad")
    token = broker.farm.enrolments.invite("bad", again=True).token
    device("bad", token=token)
    assert broker.farm.devices.get("bad").state == "idle"


def test_the_newest_token_of_a_name_alone_counts_and_none_from_before_a_revocation(broker, device):
    invite = broker.farm.enrolments.invite
    for again in (False, True):
        lost, newest = (invite("pi", again=again).token for _ in range(2))
        device("pi", token=newest)
        with refusal(UNKNOWN) as raised:
            enrol(broker, token=lost)
        assert "a later token may have replaced it" in told(raised)
    early = invite("pi", again=True).token
    broker.farm.enrolments.revoke("pi")
    with refusal(UNKNOWN):
        enrol(broker, token=early)
    device("pi", token=invite("pi", again=True).token)


def test_a_farm_that_takes_no_device_without_a_secret_ends_their_sessions(
    farm_settings, start_broker
):
    session = start_broker(farm_settings).stub().register("old")
    broker = start_broker(dataclasses.replace(farm_settings, open_enrolment=False))
    for call in (
        lambda: beat(broker.stub(), session),
        lambda: lease(broker.stub(), session, 0.1),
    ):
        with refusal(DENIED) as raised:
            call()
        assert "farrier devices add old" in told(raised)


def test_a_farm_may_take_no_device_without_a_secret(farm_settings, start_broker):
    broker = start_broker(dataclasses.replace(farm_settings, open_enrolment=False))
    with refusal(DENIED) as raised:
        broker.stub().register("old")
    assert "farrier devices add old" in told(raised)
    with refusal(DENIED):
        enrol(broker, "new")
    enrol(broker, token=broker.farm.enrolments.invite("new").token)
