"""The agent against a broker in memory: leases, reports, lost connections, untrusted manifests."""

from __future__ import annotations

import dataclasses
import json
import threading
import time

import grpc
import pytest
from small_broker import SmallBroker, unavailable

from farrier_device import connection, loop
from farrier_device.blobstore import BlobStore
from farrier_device.connection import (
    Connection,
    FencedOutError,
    TokenError,
    UsageError,
    open_channel,
)
from farrier_device.cooling import Cooling
from farrier_device.health import Health
from farrier_device.identity import Identity
from farrier_device.loop import Agent, describe_device
from farrier_device.measurement import (
    Blame,
    CodeObject,
    DeviceFault,
    MeasureRequest,
    Status,
    TimingPolicy,
    to_json,
)
from farrier_device.outbox import Outbox, PendingResult
from farrier_device.protocol import device_pb2, signing, version
from farrier_device.session import Backoff
from tests.waiting import wait_until

QUICK = TimingPolicy(min_repeats=3, min_time_s=0.001, timeout_s=5.0)


class Running:
    """An agent in a thread."""

    def __init__(
        self,
        broker,
        runner,
        state,
        token="right token",
        store_bytes=1 << 30,
        cooling=None,
        alive=lambda: None,
    ) -> None:
        identity = Identity("board", shared=token)
        self.connection = Connection(open_channel(broker.address, None), identity)
        self.outbox = Outbox(state / "outbox")
        self.store = BlobStore(state / "blobs", store_bytes)
        self.agent = Agent(
            identity,
            describe_device("1.2.3", runner),
            self.connection,
            self.store,
            self.outbox,
            runner,
            alive,
            cooling,
        )
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.agent.run()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self.agent.drain()
        self.join()

    def join(self) -> None:
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.connection.close()


@pytest.fixture
def start(broker, runner, tmp_path):
    agents = []

    def begin(**options) -> Running:
        agents.append(Running(broker, runner, tmp_path / "state", **options))
        return agents[-1]

    yield begin
    for agent in agents:
        agent.stop()


@pytest.fixture
def task(broker, library, doubling):
    """A request for some symbols; its blobs are at the broker."""

    def make(*symbols: str, policy: TimingPolicy = QUICK) -> MeasureRequest:
        for data in (doubling.x, doubling.y):
            broker.offer(data)
        candidates = tuple(map(doubling.candidate, symbols))
        return MeasureRequest((CodeObject(broker.offer(library)),), candidates, policy)

    return make


def statuses(result) -> list[Status]:
    assert result.fault is None, result.message
    return [candidate.status for candidate in result.results]


class TestSignsOfLife:
    def test_they_go_on_while_the_broker_is_silent(self, broker, start, monkeypatch):
        monkeypatch.setattr(loop, "RENEWED_S", 0.01)
        silent, go_on, signs = threading.Event(), threading.Event(), []

        def stand_still(_context) -> None:
            silent.set()
            go_on.wait(20)

        broker.faults["Heartbeat"] = [stand_still]
        start(alive=lambda: signs.append(None))
        try:
            assert silent.wait(20)
            before = len(signs)
            wait_until(lambda: len(signs) > before + 10)
        finally:
            go_on.set()

    def test_they_end_where_the_heart_hangs(self, broker, start, monkeypatch):
        monkeypatch.setattr(loop, "RENEWED_S", 0.01)
        monkeypatch.setattr(loop, "_BEAT_S", 1.0)
        go_on, signs = threading.Event(), []
        running = start(alive=lambda: signs.append(time.monotonic()))
        wait_until(lambda: len(broker.heartbeats) > 1)
        monkeypatch.setattr(running.connection, "heartbeat", lambda _request: go_on.wait(30))
        try:
            wait_until(lambda: time.monotonic() - signs[-1] > 0.5)
        finally:
            monkeypatch.undo()
            go_on.set()


class TestBatch:
    def test_the_whole_way(self, broker, start, task):
        broker.submit("lease-1", task("right", "wrong", "crash"), fence=7)
        running = start()
        result = broker.result("lease-1", 7)
        assert statuses(result) == [Status.OK, Status.WRONG, Status.CRASHED]
        assert "rlimits" in result.sandbox
        assert result.transfer_s > 0
        assert result.run_s > 0
        wait_until(lambda: running.outbox.waiting() == ())
        description = broker.registered[0].description
        assert broker.registered[0].device_id == "board"
        assert description.cores >= 1
        assert description.sandbox == result.sandbox
        assert description.agent_version == "1.2.3"

    def test_blobs_are_fetched_once(self, broker, start, task):
        start()
        for number in range(3):
            broker.submit(f"lease-{number}", task("right"))
            assert statuses(broker.result(f"lease-{number}")) == [Status.OK]
        assert len(broker.offsets) == 3  # These are the library, x and y.

    def test_heartbeats_name_the_lease_while_it_is_measured(self, broker, start, task):
        start()
        broker.submit("long", task("slow", policy=dataclasses.replace(QUICK, min_repeats=2)))
        broker.result("long")
        named = [beat for beat in broker.heartbeats if "long" in beat.leases]
        assert len(named) >= 3
        assert all(beat.state == device_pb2.DEVICE_STATE_READY for beat in named)

    def test_heartbeats_name_the_lease_until_it_is_reported(self, broker, start, task):
        running = start()
        broker.faults["Report"] += [unavailable] * 1000
        broker.submit("kept", task("right"))
        wait_until(running.outbox.waiting)
        beats = len(broker.heartbeats)
        wait_until(lambda: len(broker.heartbeats) > beats + 2)
        assert all("kept" in beat.leases for beat in broker.heartbeats[beats + 1 :])
        broker.faults["Report"].clear()
        broker.result("kept")
        wait_until(lambda: broker.heartbeats[-1].leases == [])

    def test_heartbeats_go_on_while_it_drains(self, broker, start, task):
        running = start()
        broker.submit("long", task("slow", policy=dataclasses.replace(QUICK, min_repeats=2)))
        wait_until(lambda: any("long" in beat.leases for beat in broker.heartbeats))
        running.agent.drain()
        broker.result("long")
        draining = [
            beat
            for beat in broker.heartbeats
            if beat.state == device_pb2.DEVICE_STATE_DRAINING and "long" in beat.leases
        ]
        assert len(draining) >= 2

    def test_revoked_batch_ends_and_is_not_reported(self, broker, start, task):
        start()
        broker.submit("hung", task("hang", policy=dataclasses.replace(QUICK, timeout_s=60)))
        wait_until(lambda: any("hung" in beat.leases for beat in broker.heartbeats))
        broker.revoked.add("hung")
        broker.submit("next", task("right"))
        assert statuses(broker.result("next")) == [Status.OK]
        assert ("hung", 1) not in broker.reports

    def test_batch_over_its_deadline_is_lost(self, broker, start, task):
        start()
        policy = dataclasses.replace(QUICK, timeout_s=60)
        broker.submit("late", task("hang", policy=policy), deadline_ms=300)
        assert broker.result("late").fault is DeviceFault.LOST


class TestHeat:
    def test_a_hot_machine_waits_and_says_so(self, broker, start, task):
        heat = [Health(85.0, 80.0, 1500, 1800, "throttled")]
        start(cooling=Cooling(60.0, lambda: heat[0], look_s=0.01))
        broker.submit("lease-1", task("right"))
        waits = "waits to cool: 85 °C, limit 80 °C, throttled"
        wait_until(lambda: any(beat.message == waits for beat in broker.heartbeats))
        assert not broker.reports
        health = broker.heartbeats[-1].health
        assert (health.celsius, health.limit_celsius, health.waits) == (85.0, 80.0, waits)
        assert (health.clock_mhz, health.max_clock_mhz) == (1500, 1800)
        assert not health.HasField("throttles")
        heat[:] = [Health(60.0, 80.0)]
        assert broker.result("lease-1").hot == ""

    def test_what_is_measured_hot_says_so(self, broker, start, task):
        start(cooling=Cooling(0.0, lambda: Health(85.0, 80.0)))
        broker.submit("lease-1", task("right"))
        assert broker.result("lease-1").hot == "85 °C, limit 80 °C"


class TestConnection:
    def test_lost_before_the_report_counts(self, broker, start, task):
        broker.faults["Report"] += [unavailable, unavailable]
        broker.submit("one", task("right"))
        start()
        assert statuses(broker.result("one")) == [Status.OK]

    def test_lost_after_the_report_counts(self, broker, start, task):
        """The report is repeated: the broker sees it twice, and takes it once."""
        broker.after["Report"].append(unavailable)
        broker.submit("one", task("right"))
        running = start()
        broker.result("one")
        wait_until(lambda: running.outbox.waiting() == ())
        assert broker.report_calls == 2
        assert len(broker.reports) == 1

    def test_broker_restarts_while_it_measures(self, broker, start, task):
        start()
        broker.submit("one", task("slow", policy=dataclasses.replace(QUICK, min_repeats=3)))
        wait_until(lambda: any("one" in beat.leases for beat in broker.heartbeats))
        broker.stop()
        broker.forget()
        broker.start()
        assert statuses(broker.result("one")) == [Status.OK]
        first, again = broker.registered
        assert first.instance == again.instance != ""
        broker.submit("two", task("right"))
        assert statuses(broker.result("two")) == [Status.OK]

    def test_session_lost_is_renewed_by_the_heartbeat(self, broker, start, task):
        start()
        broker.submit("one", task("slow", policy=dataclasses.replace(QUICK, min_repeats=3)))
        wait_until(lambda: any("one" in beat.leases for beat in broker.heartbeats))
        broker.forget()
        wait_until(lambda: len(broker.registered) == 2)
        assert ("one", 1) not in broker.reports  # still measuring
        assert statuses(broker.result("one")) == [Status.OK]

    def test_newer_session_fences_this_one_out(self, broker, start):
        running = start()
        wait_until(lambda: broker.sessions)
        broker.sessions["board"] = "of another agent"
        running.join()
        assert isinstance(running.error, FencedOutError)
        assert "another agent has registered as 'board'" in str(running.error)

    def test_stale_report_is_dropped(self, broker, start, task):
        broker.stale.add("old")
        broker.submit("old", task("right"))
        broker.submit("new", task("right"))
        running = start()
        broker.result("new")
        wait_until(lambda: running.outbox.waiting() == ())
        assert broker.report_calls == 2

    def test_refused_report_does_not_block_the_next(self, broker, start, task):
        broker.faults["Report"].append(
            lambda context: context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no result")
        )
        broker.submit("bad", task("right"))
        broker.submit("good", task("right"))
        start()
        assert statuses(broker.result("good")) == [Status.OK]

    def test_result_of_an_earlier_life_is_delivered(self, broker, start, tmp_path, task):
        first = start()
        broker.faults["Report"] += [unavailable] * 1000
        broker.submit("kept", task("right"))
        wait_until(lambda: first.outbox.waiting())
        outbox = Outbox(tmp_path / "state" / "outbox")  # A new process reads it like this.
        (letter,) = outbox.waiting()
        assert letter.lease == "kept"
        broker.faults["Report"].clear()
        assert statuses(broker.result("kept")) == [Status.OK]

    def test_wrong_token(self, broker, start):
        running = start(token="wrong token")
        running.join()
        assert isinstance(running.error, TokenError)
        assert broker.registered == []

    def test_a_token_that_is_changed_ends_it_and_its_next_life_delivers(self, broker, start, task):
        first = start()
        broker.faults["Report"] += [unavailable] * 1000
        broker.submit("kept", task("right"))
        wait_until(first.outbox.waiting)
        broker.token = "new token"
        first.join()
        assert isinstance(first.error, TokenError)
        broker.faults["Report"].clear()
        start(token="new token")
        assert statuses(broker.result("kept")) == [Status.OK]

    def test_refused_name(self, broker, start):
        broker.faults["Register"] += [
            lambda context: context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such name")
        ]
        running = start()
        running.join()
        assert isinstance(running.error, UsageError)
        assert "no such name" in str(running.error)

    def test_a_broker_that_is_too_old(self, broker, start, monkeypatch):
        monkeypatch.setattr(version, "OLDEST", 2)  # The broker states no version.
        running = start()
        running.join()
        assert isinstance(running.error, UsageError)
        assert "uses version 1 of the protocol" in str(running.error)
        assert "update the farm's server" in str(running.error)


class TestTrust:
    @pytest.mark.parametrize("signature", [b"", b"\0" * 32])
    def test_unsigned_manifest_is_not_run(self, broker, start, task, signature):
        start()
        broker.submit("evil", task("right"), signature=signature)
        result = broker.result("evil")
        assert (result.fault, result.blame) == (DeviceFault.BROKEN, Blame.AGENT)
        assert "not signed" in result.message
        assert "token" in result.message
        assert broker.offsets == []

    def test_blob_with_other_bytes(self, broker, start, task):
        request = task("right")
        broker.blobs[request.code[0].blob] = broker.blobs[request.code[0].blob][:-1] + b"!"
        start()
        broker.submit("one", request)
        result = broker.result("one")
        assert (result.fault, result.blame) == (DeviceFault.BROKEN, Blame.FARM)
        assert request.code[0].blob in result.message
        assert broker.asked.count(request.code[0].blob) == 2
        assert set(broker.offsets) == {0}

    def test_blob_that_the_broker_lacks(self, broker, start, task):
        request = task("right")
        del broker.blobs[request.code[0].blob]
        start()
        broker.submit("one", request)
        result = broker.result("one")
        assert (result.fault, result.blame) == (DeviceFault.BROKEN, Blame.FARM)
        assert "no blob" in result.message
        beats = len(broker.heartbeats)
        wait_until(lambda: len(broker.heartbeats) > beats + 1)
        assert broker.heartbeats[-1].state == device_pb2.DEVICE_STATE_READY

    def test_digest_that_is_a_path(self, broker, start, task):
        start()
        broker.submit(
            "one", dataclasses.replace(task("right"), code=(CodeObject("../../etc/passwd"),))
        )
        assert "not a sha256" in broker.result("one").message

    @pytest.mark.parametrize("asked", [1, 0])
    def test_manifest_of_a_newer_version(self, broker, start, task, asked):
        """It is measured unless it asks for something that the agent does not know."""
        raw = json.loads(to_json(task("right")))
        raw["policy"]["nope"] = asked
        manifest = json.dumps(raw).encode()
        start()
        broker._batches.put(
            device_pb2.Batch(
                lease="odd",
                fence=1,
                manifest=manifest,
                signature=signing.sign(broker.token, manifest),
            )
        )
        result = broker.result("odd")
        if asked:
            assert (result.fault, result.blame) == (DeviceFault.BROKEN, Blame.AGENT)
            assert "update the agent" in result.message
            assert "the request: MeasureRequest.policy: it has an unknown field 'nope'" in (
                result.message
            )
        else:
            assert statuses(result) == [Status.OK]

    def test_broken_stream_is_resumed(self, broker, start, task):
        request = task("right")
        broker.after["GetBlob"] += [unavailable]  # It fails after a first chunk.
        start()
        broker.submit("one", request)
        assert statuses(broker.result("one")) == [Status.OK]
        assert any(offset > 0 for offset in broker.offsets)

    @pytest.mark.parametrize("how", ["revoked", "late"])
    def test_silent_stream_ends_with_its_lease(self, broker, start, task, how):
        go_on = threading.Event()
        broker.after["GetBlob"].append(lambda context: go_on.wait(20))
        start()
        broker.submit("silent", task("right"), deadline_ms=300 if how == "late" else 0)
        wait_until(lambda: broker.offsets and any("silent" in b.leases for b in broker.heartbeats))
        if how == "revoked":
            broker.revoked.add("silent")
        else:
            assert broker.result("silent").fault is DeviceFault.LOST
        broker.submit("next", task("right"))
        assert statuses(broker.result("next")) == [Status.OK]
        assert not go_on.is_set()
        go_on.set()

    def test_silent_stream_is_asked_for_again(self, broker, start, task, monkeypatch):
        monkeypatch.setattr(connection, "_BLOB_TIMEOUT_S", 0.3)
        go_on = threading.Event()
        broker.after["GetBlob"].append(lambda context: go_on.wait(20))
        start()
        broker.submit("one", task("right"))
        assert statuses(broker.result("one")) == [Status.OK]
        assert any(offset > 0 for offset in broker.offsets)
        go_on.set()

    def test_full_store(self, broker, start, task):
        start(store_bytes=1000)
        broker.submit("one", task("right"))
        assert broker.result("one").fault is DeviceFault.NO_SPACE
        wait_until(
            lambda: any(
                beat.state == device_pb2.DEVICE_STATE_UNHEALTHY for beat in broker.heartbeats
            )
        )


class TestAddress:
    @pytest.mark.parametrize("broker", ["farm.example:50", "10.0.0.1:50", "0.0.0.0:50", "[::2]:50"])
    def test_no_plaintext_beyond_this_machine(self, broker):
        with pytest.raises(UsageError, match="--tls-ca"):
            open_channel(broker, None)

    @pytest.mark.parametrize("broker", ["localhost:50", "127.0.0.9:50", "[::1]:50"])
    def test_plaintext_on_this_machine(self, broker):
        open_channel(broker, None).close()

    @pytest.mark.parametrize("broker", ["localhost", "localhost:http", ":50", ""])
    def test_no_address(self, broker):
        with pytest.raises(UsageError, match="HOST:PORT"):
            open_channel(broker, None)

    def test_missing_certificates(self, tmp_path):
        with pytest.raises(UsageError, match="No such file"):
            open_channel("farm.example:50", tmp_path / "ca.pem")


class TestOutbox:
    def test_survives_and_forgets(self, tmp_path):
        outbox = Outbox(tmp_path)
        letters = [
            PendingResult("a/../b", 1, "{}"),
            PendingResult("a/../b", 2, "{}"),
            PendingResult("ü", 1, "{}"),
        ]
        for letter in letters:
            outbox.add(letter)
        again = Outbox(tmp_path)
        assert set(again.waiting()) == set(letters)
        again.delivered(letters[1])
        assert set(Outbox(tmp_path).waiting()) == {letters[0], letters[2]}

    def test_rubbish_is_removed(self, tmp_path):
        (tmp_path / "x.json").write_text("{")
        assert Outbox(tmp_path).waiting() == ()
        assert list(tmp_path.iterdir()) == []


def test_waits_grow_to_the_longest_and_start_anew():
    backoff = Backoff(0.2, 10.0)
    waits = [backoff.next_s() for _ in range(9)]
    for wait, floor in zip(waits, (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10), strict=True):
        assert floor <= wait <= floor * 4 / 3
    backoff.reset()
    assert backoff.next_s() < 0.3


def test_small_broker_needs_the_token():
    """The double refuses what the real one refuses, or the tests above prove nothing."""
    broker = SmallBroker()
    broker.start()
    try:
        with pytest.raises(TokenError):
            Connection(open_channel(broker.address, None), Identity("d", shared="x")).register(
                device_pb2.RegisterRequest(device_id="d")
            )
    finally:
        broker.stop()
