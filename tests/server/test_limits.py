"""Tests of the shares of users: a user who sends too much gets an error, and others notice
nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from farrier.errors import TooManyRequestsError, UsageError
from farrier_farm.access.users import DEFAULT, Role, Users
from farrier_farm.settings import Settings
from farrier_server import limits
from farrier_server.connections import Connections, raise_file_limit
from farrier_server.limits import Limits, Pool
from farrier_server.problems import MEDIA_TYPE, BusyError
from tests.here import TARGET
from tests.waiting import wait_until

PATIENCE_S = 60.0


def opened(url: str, token: str, path: str = "/v1/events") -> tuple[socket.socket, bytes]:
    """A connection that has asked for a stream, and the head of the answer."""
    where = urllib.parse.urlsplit(url)
    link = socket.create_connection((where.hostname, where.port), PATIENCE_S)
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    link.sendall(request.encode())
    return link, link.recv(1 << 16)


def test_a_thousand_streams_of_one_user_shut_out_nobody(service):
    raise_file_limit()
    users = Users(service.settings.home)
    ann, bob = users.add("ann"), users.add("bob")
    statuses: list[int] = []
    took: list[float] = []

    def ask(http: httpx.Client) -> None:
        begin = time.perf_counter()
        statuses.append(http.get("/v1/jobs").status_code)
        took.append(time.perf_counter() - begin)

    with contextlib.ExitStack() as stack:
        headers = {"Authorization": f"Bearer {bob}"}
        http = stack.enter_context(
            httpx.Client(base_url=service.url, headers=headers, timeout=PATIENCE_S)
        )
        heads = []
        for index in range(1100):
            link, head = opened(service.url, ann)
            stack.enter_context(link)
            heads.append(head)
            if index % 20 == 0:
                ask(http)
        for _ in range(50):
            ask(http)
        link, head = opened(service.url, bob)
        stack.enter_context(link)
        assert head.startswith(b"HTTP/1.1 200"), head
    answers = [head.split(b" ")[1] for head in heads]
    assert (answers.count(b"200"), answers.count(b"429")) == (100, 1000)
    assert statuses.count(200) >= 0.99 * len(statuses), statuses
    print(f"p99 of the others: {sorted(took)[int(0.99 * len(took))] * 1e3:.0f} ms")


def test_a_refusal_names_the_limit_and_when_to_ask_again(farm_settings, start_service):
    settings = dataclasses.replace(farm_settings, streams_of_user=1)
    service = start_service(settings)
    token = Users(settings.home).add("ann")
    with contextlib.ExitStack() as stack:
        link, head = opened(service.url, token)
        stack.enter_context(link)
        assert head.startswith(b"HTTP/1.1 200")
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.get(f"{service.url}/v1/events", headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (429, MEDIA_TYPE)
        assert answer.json()["code"] == "too-many-requests"
        assert "1 event streams of ann" in answer.json()["detail"]
        assert "FARRIER_STREAMS_OF_USER" in answer.json()["hint"]
        assert int(answer.headers["Retry-After"]) > 0
        assert httpx.get(f"{service.url}/v1/jobs", headers=headers).status_code == 200
        lines = service.http().get("/metrics").text.splitlines()
        assert 'farrier_refusals_total{limit="streams"} 1.0' in lines
        assert 'farrier_places_taken{pool="streams"} 1.0' in lines
        assert 'farrier_places_taken_by_one{pool="streams"} 1.0' in lines
        assert not any("ann" in line for line in lines)


def test_the_client_waits_for_a_place(farm_settings, start_service, monkeypatch, caplog):
    monkeypatch.setitem(limits._RETRY_S, Pool.STREAMS, 0)
    service = start_service(dataclasses.replace(farm_settings, streams_of_user=1))
    token = Users(service.settings.home).add("ann", Role.OPERATOR)
    link, head = opened(service.url, token)
    with link, ThreadPoolExecutor(1) as pool:
        assert head.startswith(b"HTTP/1.1 200")
        with (
            dataclasses.replace(service, token=token).client(patience_s=0.0) as hasty,
            pytest.raises(TooManyRequestsError, match="streams of ann"),
        ):
            next(hasty.events())
        with dataclasses.replace(service, token=token).client() as client:
            waiting = pool.submit(lambda: next(client.events("0-0")))
            wait_until(lambda: "waiting for the server" in caplog.text)
            link.close()
            service.farm.news.warn("serve", "hello")
            assert waiting.result(PATIENCE_S).kind == "warning"


def test_the_client_waits_where_it_asks_too_often(farm_settings, start_service, caplog):
    service = start_service(dataclasses.replace(farm_settings, request_rate_of_user=0.5))
    token = Users(service.settings.home).add("ann")
    with dataclasses.replace(service, token=token).client() as client:
        for _ in range(6):  # 5 of them come at once
            list(client.jobs())
    assert "ann has exceeded 0.5 requests a second" in caplog.text


def test_a_full_queue_counts_as_a_refusal(farm_settings, start_service):
    service = start_service(dataclasses.replace(farm_settings, max_queued_jobs_of_owner=1))
    http, model = service.http(), service.farm.blobs.put(b"model")
    request = {"model": model, "options": {"target": "rpi4", "verify": False}}
    assert [http.post("/v1/jobs", json=request).status_code for _ in range(2)] == [201, 429]
    assert 'farrier_refusals_total{limit="queued-jobs"} 1.0' in http.get("/metrics").text


def test_every_event_stream_is_known_by_its_path(service):
    document = httpx.get(f"{service.url}/openapi.json", timeout=PATIENCE_S).json()
    streams = {
        path.replace("{job_id}", "a1")
        for path, operations in document["paths"].items()
        if "text/event-stream" in str(operations.get("get", {}).get("responses"))
    }
    assert streams == {"/v1/events", "/v1/jobs/a1/events"}
    assert {Pool.of("GET", path) for path in streams} == {Pool.STREAMS}
    assert Pool.of("GET", "/v1/jobs/a1/artifact") is Pool.of("PATCH", "/v1/uploads/a1")


def test_each_pool_and_user_has_a_share(monkeypatch):
    monkeypatch.setattr(limits, "PLACES", dict.fromkeys(Pool, 10))
    kept = Limits(Settings(streams_of_user=4, request_rate_of_user=0))
    leave = [kept.enter("ann", Pool.STREAMS) for _ in range(4)]
    with pytest.raises(TooManyRequestsError, match="4 event streams of ann"):
        kept.enter("ann", Pool.STREAMS)
    kept.enter("ann", Pool.REQUESTS)
    for user in ("bob", "eve"):
        for _ in range(3):
            kept.enter(user, Pool.STREAMS)
    with pytest.raises(BusyError, match="10 event streams"):
        kept.enter("bob", Pool.STREAMS)
    assert kept.most() == {Pool.STREAMS: 4, Pool.REQUESTS: 1, Pool.TRANSFERS: 0}
    leave[0]()
    kept.enter("ann", Pool.STREAMS)


def test_the_installation_leaves_a_tenth_to_others(monkeypatch):
    monkeypatch.setattr(limits, "PLACES", dict.fromkeys(Pool, 10))
    kept = Limits(Settings(requests_of_user=1, request_rate_of_user=0.1))
    for _ in range(9):
        kept.enter(DEFAULT, Pool.REQUESTS)
    with pytest.raises(TooManyRequestsError, match="9 requests of default"):
        kept.enter(DEFAULT, Pool.REQUESTS)
    kept.enter("ann", Pool.REQUESTS)


def test_a_rate_is_that_of_a_while(monkeypatch):
    now = [0.0]
    kept = Limits(Settings(request_rate_of_user=2), clock=lambda: now[0])
    for _ in range(20):
        kept.enter("ann", Pool.REQUESTS)()
    with pytest.raises(TooManyRequestsError) as raised:
        kept.enter("ann", Pool.REQUESTS)
    assert (raised.value.retry_after_s, raised.value.limit) == (1, "request-rate")
    kept.enter("bob", Pool.REQUESTS)()
    now[0] += raised.value.retry_after_s
    kept.enter("ann", Pool.REQUESTS)()
    kept.enter("ann", Pool.REQUESTS)()
    with pytest.raises(TooManyRequestsError):
        kept.enter("ann", Pool.REQUESTS)


class Link:
    """The part of a connection that `Connections` uses."""

    def __init__(self, holder: object) -> None:
        self.holder, self.serves, self.turn, self.has_ended = holder, "", 0, False

    def give_way(self, *, to: Link) -> None:
        self.has_ended = True


def test_a_crowd_makes_room_for_itself_alone(monkeypatch):
    """Idle connections of strangers at one address, and of one user."""
    kept = Connections()
    kept.most = 30
    quiet = [Link(("10.0.0.1",)), Link(("10.0.0.2",))]
    crowd = [Link(("10.0.0.3",)) for _ in range(60)]
    users = [Link(("10.0.0.4",)) for _ in range(60)]

    def come(link: Link) -> None:
        kept.wait(link)
        kept.add(link)
        for connection in list(kept.open):
            if connection.has_ended:
                kept.leave(connection)

    for link in (*quiet, *crowd):
        come(link)
    for link in users:
        come(link)
        if not link.has_ended:
            kept.serve(link, "ann")
            kept.wait(link)
    assert not any(link.has_ended for link in quiet)
    assert sum(link.has_ended for link in crowd) + sum(link.has_ended for link in users) == 92


def test_one_user_serves_in_half_of_all_connections_at_most():
    kept = Connections()
    kept.most = 10
    links = [Link(("10.0.0.1",)) for _ in range(6)]
    for link in links[:5]:
        kept.serve(link, "ann")
    with pytest.raises(TooManyRequestsError, match="5 connections of ann"):
        kept.serve(links[5], "ann")
    kept.serve(links[5], "bob")
    kept.serve(links[4], "ann")  # its next request
    kept.wait(links[0])
    kept.serve(links[0], "ann")


def test_uploads_and_device_time_of_a_user_are_bounded(farm_settings, start_service):
    bounds = {"upload_bytes_of_user": 1000, "device_seconds_of_user": 1.0}
    service = start_service(dataclasses.replace(farm_settings, **bounds))
    token = Users(service.settings.home).add("ann")
    http = dataclasses.replace(service, token=token).http()

    def announced(size: int) -> httpx.Response:
        return http.post("/v1/uploads", json={"size": size, "sha256": "ab" * 32})

    assert announced(900).status_code == 200
    refused = announced(900)
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")
    assert refused.headers["Retry-After"] == "60"
    assert len(list((service.settings.home / "uploads").glob("*.json"))) == 1
    day = int(time.time() // 86400)
    for day_number in (day, day + 1):  # It may be almost midnight.
        service.farm.client.command("HSET", f"farrier:device-ms:{day_number}", "ann", 1000)
    job = {"model": "ab" * 32, "options": {"target": TARGET}, "wait_for_device": True}
    refused = http.post("/v1/jobs", json=job)
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")
    assert "1 s today" in refused.json()["detail"]
    job["options"]["verify"] = False
    assert http.post("/v1/jobs", json=job).status_code == 404  # The model does not exist.
    lines = service.http().get("/metrics").text.splitlines()
    assert "farrier_device_seconds_today_by_one 1.0" in lines
    assert 'farrier_refusals_total{limit="upload-bytes"} 1.0' in lines
    assert 'farrier_refusals_total{limit="device-seconds"} 1.0' in lines


def test_high_priority_is_for_operators(farm_settings, start_service):
    service = start_service(farm_settings)
    open_service = start_service(dataclasses.replace(farm_settings, high_priority=True))
    users, model = Users(farm_settings.home), service.farm.blobs.put(b"model")
    tokens = users.add("ann"), users.add("olga", Role.OPERATOR)
    ann, olga = (dataclasses.replace(service, token=token).http() for token in tokens)
    for user in ("ann", "olga"):
        service.farm.owners.note(user, [model])

    def submitted(http: httpx.Client, priority: str) -> httpx.Response:
        options = {"target": "rpi4", "verify": False}
        return http.post(
            "/v1/jobs", json={"model": model, "options": options, "priority": priority}
        )

    assert submitted(ann, "low").json()["priority"] == "low"
    refused = submitted(ann, "high")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "FARRIER_HIGH_PRIORITY" in refused.json()["hint"]
    assert submitted(olga, "high").json()["priority"] == "high"
    assert submitted(olga, "highest").status_code == 400
    allowed = dataclasses.replace(open_service, token=tokens[0]).http()
    assert submitted(allowed, "high").status_code == 201


def test_the_client_submits_with_a_priority(service):
    with service.client() as client:
        job = client.submit(b"model", target="rpi4", verify=False, priority="high")
        assert client.job(job.id).priority == "high"
        with pytest.raises(UsageError, match="unknown priority 'urgent'"):
            client.submit(b"model", priority="urgent")
