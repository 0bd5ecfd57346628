"""Webhooks: signed, tried again, kept over a restart; and none leads to where it must not."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import http.server
import ipaddress
import json
import socket
import threading
import time

import httpx
import pytest

from farrier.errors import NotFoundError, QueueFullError, UsageError
from farrier.options import CompileOptions
from farrier_farm.access.users import Role, Users
from farrier_farm.events import posting
from farrier_farm.events.posting import PostError, check_url, post
from farrier_farm.events.webhooks import DEVICE_EVENTS, JOB_EVENTS, MOST_HOOKS
from farrier_farm.farm import Farm
from farrier_farm.roles import notifier
from farrier_farm.roles.notifier import Notifier
from tests.here import TARGET
from tests.waiting import wait_until

OPTIONS = CompileOptions(target=TARGET, verify=False)
PATIENCE_S = 60.0  # Far more than a busy machine takes.


class Receiver:
    """An HTTP server that answers with the statuses that it is given, then with 204."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self._news = threading.Condition()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.answers.pop(0) if receiver.answers else 204
                self.send_response(status)
                self.send_header("Location", f"{receiver.url}/elsewhere")
                self.end_headers()
                with receiver._news:
                    receiver.got.append((self.path, dict(self.headers), body))
                    receiver._news.notify_all()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def wait(self, count: int) -> list[dict]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.got) >= count, PATIENCE_S), self.got
        return [json.loads(body) for _, _, body in self.got]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver():
    with contextlib.closing(Receiver()) as receiver:
        yield receiver


@pytest.fixture
def settings(farm_settings):
    return dataclasses.replace(farm_settings, webhook_private=True)


@pytest.fixture
def service(start_service, settings, monkeypatch):
    monkeypatch.setattr(notifier, "_LOOK_S", 0.02)
    monkeypatch.setattr(notifier, "_BUSY_S", 0.02)
    monkeypatch.setattr(notifier, "_FIRST_PAUSE_S", 0.01)
    return start_service(settings)


def add(client, url, *events):
    answer = client.post("/v1/webhooks", json={"url": url, "events": list(events or JOB_EVENTS)})
    assert answer.status_code == 201, answer.text
    return answer.json()


def client_of(service, name, role=Role.USER):
    head = {"Authorization": f"Bearer {Users(service.settings.home).add(name, role)}"}
    client = httpx.Client(base_url=service.url, headers=head, timeout=30)
    return service.closing.enter_context(client)


def end_job(farm, owner="default", name="net"):
    job = farm.jobs.submit(farm.blobs.put(b"model"), OPTIONS, owner=owner, name=name).id
    farm.jobs.cancel(job)
    return job


def test_its_owner_is_told_by_a_signed_request(service, receiver):
    hook = add(service.http(), f"{receiver.url}/path?q=1")
    strangers = add(client_of(service, "ann"), f"{receiver.url}/ann")
    wait_until(service.farm.webhooks.cursor)
    job = end_job(service.farm)
    (delivery,) = receiver.wait(1)
    path, headers, body = receiver.got[0]
    assert path == "/path?q=1"
    assert (delivery["event"], delivery["job"]["id"], delivery["job"]["name"]) == (
        "job.cancelled",
        job,
        "net",
    )
    assert delivery["delivery"] == headers["Farrier-Delivery"]
    at, signature_sent = headers["Farrier-Signature"].removeprefix("t=").split(",v1=")
    expected = hmac.new(hook["secret"].encode(), f"{at}.".encode() + body, hashlib.sha256)
    assert signature_sent == expected.hexdigest()
    assert abs(int(at) - time.time()) < 600
    theirs = end_job(service.farm, owner="ann")
    assert receiver.wait(2)[1]["job"]["id"] == theirs
    assert receiver.got[1][0] == "/ann"
    wait_until(lambda: service.farm.webhooks.get(strangers["id"]).delivered == 1)
    shown = service.http().get("/v1/webhooks").text
    assert hook["id"] in shown
    assert hook["secret"] not in shown
    assert strangers["id"] not in shown


@pytest.mark.long
def test_what_fails_is_tried_again_and_given_up_at_last(service, receiver):
    hook = add(service.http(), receiver.url)
    wait_until(service.farm.webhooks.cursor)
    receiver.answers = [500, 302, 404]  # A redirect is not followed.
    end_job(service.farm)
    deliveries = receiver.wait(4)
    assert {path for path, _, _ in receiver.got} == {"/"}
    assert len({delivery["delivery"] for delivery in deliveries}) == 1
    wait_until(lambda: service.farm.webhooks.get(hook["id"]).delivered == 1)
    assert service.farm.webhooks.get(hook["id"]).last_error == ""
    receiver.answers = [500] * service.settings.webhook_attempts
    end_job(service.farm)
    wait_until(lambda: service.farm.webhooks.get(hook["id"]).failed == 1)
    assert service.farm.webhooks.get(hook["id"]).last_error == "the answer has the status 500"
    assert service.farm.client.command("ZCARD", "farrier:deliveries") == 0
    assert service.http().post(f"/v1/webhooks/{hook['id']}/ping").status_code == 202
    assert receiver.wait(4 + service.settings.webhook_attempts + 1)[-1]["event"] == "ping"


def test_a_user_who_was_removed_receives_nothing_more(service, receiver):
    webhooks = service.farm.webhooks
    before = webhooks.add("ann", f"{receiver.url}/ann", JOB_EVENTS)
    hook = webhooks.add("default", receiver.url, JOB_EVENTS)
    webhooks.make("", [(each, '{"event": "ping"}') for each in (before, hook)])
    wait_until(lambda: webhooks.get(before.id).failed == webhooks.get(hook.id).delivered == 1)
    assert [path for path, _, _ in receiver.got] == ["/"]
    assert "its user has no token any more" in webhooks.get(before.id).last_error


def test_what_happens_while_no_server_runs_is_told_later(farm_settings, start_service, receiver):
    settings = dataclasses.replace(farm_settings, webhook_private=True)
    with contextlib.closing(Farm.open(settings)) as farm:
        with Notifier(farm):
            farm.webhooks.add("default", receiver.url, JOB_EVENTS)
            wait_until(farm.webhooks.cursor)
        jobs = [end_job(farm) for _ in range(3)]
        farm.webhooks.add("default", receiver.url, ["job.failed"])
    start_service(settings)
    assert sorted(delivery["job"]["id"] for delivery in receiver.wait(3)) == sorted(jobs)


def test_devices_are_told_of_to_operators(service, receiver, device_side):
    ann = client_of(service, "ann")
    answer = ann.post("/v1/webhooks", json={"url": receiver.url, "events": ["device.offline"]})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    operator = client_of(service, "ops", Role.OPERATOR)
    add(operator, receiver.url, *DEVICE_EVENTS)
    wait_until(service.farm.webhooks.cursor)
    news = json.dumps({"kind": "device", "device": "d1", "what": "quarantined", "reason": "drift"})
    service.farm.client.command("XADD", "farrier:events", "*", "data", news)
    (delivery,) = receiver.wait(1)
    assert (delivery["event"], delivery["device"], delivery["reason"]) == (
        "device.quarantined",
        "d1",
        "drift",
    )
    Users(service.settings.home).remove("ops")  # With the user, the webhooks are removed as well.
    service.farm.client.command("XADD", "farrier:events", "*", "data", news)
    last = service.farm.client.command("XREVRANGE", "farrier:events", "+", "-", "COUNT", 1)[0][0]
    wait_until(lambda: service.farm.webhooks.cursor() == last)
    assert service.farm.client.command("ZCARD", "farrier:deliveries") == 0


def test_one_that_hangs_holds_up_nobody_else(service, receiver):
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        ann = client_of(service, "ann")
        for _ in range(5):
            add(ann, f"http://127.0.0.1:{silent.getsockname()[1]}")
        add(service.http(), receiver.url)
        wait_until(service.farm.webhooks.cursor)
        for _ in range(4):
            end_job(service.farm, owner="ann")
        wait_until(lambda: service.farm.client.command("ZCARD", "farrier:deliveries") >= 20)
        job = end_job(service.farm)
        assert receiver.wait(1)[0]["job"]["id"] == job


def test_a_try_is_cut_however_slowly_it_is_answered(monkeypatch):
    monkeypatch.setattr(posting, "TIMEOUT_S", 0.5)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as slow:

        def drip():
            connection, _ = slow.accept()
            with connection, contextlib.suppress(OSError):
                while not over.wait(0.05):
                    connection.sendall(b"H")

        dripping = threading.Thread(target=drip)
        dripping.start()
        url = f"http://127.0.0.1:{slow.getsockname()[1]}"
        with pytest.raises(PostError):
            post(url, b"{}", {}, private=True)
        over.set()
        dripping.join()


def test_the_queue_is_bounded_and_goes_with_its_webhook(farm_settings):
    settings = dataclasses.replace(farm_settings, webhook_queue=30)
    with contextlib.closing(Farm.open(settings)) as farm:
        hook = farm.webhooks.add("ann", "http://example.com", JOB_EVENTS)
        dropped = [farm.webhooks.make(f"{n}-1", [(hook, "{}")]) for n in range(1, 6)]
        assert dropped == [0, 0, 0, 1, 1]
        assert farm.webhooks.make("3-1", [(hook, "{}")]) == 0  # it was made
        other = farm.webhooks.add("ann", "http://example.com", JOB_EVENTS)
        assert farm.webhooks.make("6-1", [(other, "{}")]) == 1
        taken = farm.webhooks.take(2, of_user=10)
        assert [delivery.id for delivery in taken] == [f"1-1-{hook.id}", f"2-1-{hook.id}"]
        assert [delivery.id for delivery in farm.webhooks.take(10, of_user=10)] == [
            f"3-1-{hook.id}"
        ]
        farm.webhooks.settle(taken[1], "", None)
        assert farm.webhooks.make("7-1", [(other, "{}")]) == 0
        farm.webhooks.remove(hook.id), farm.webhooks.remove(other.id)
        farm.webhooks.settle(taken[0], "late", 1.0)
        assert farm.client.command("KEYS", "farrier:deliver*") == []
        with pytest.raises(NotFoundError):
            farm.webhooks.remove(hook.id)
        for _ in range(MOST_HOOKS):
            farm.webhooks.add("ann", "http://example.com", JOB_EVENTS)
        with pytest.raises(QueueFullError, match="ann already has 20 webhooks"):
            farm.webhooks.add("ann", "http://example.com", JOB_EVENTS)
        farm.webhooks.add("ben", "http://example.com", JOB_EVENTS)
        with pytest.raises(UsageError, match=r"there is no event 'job\.x'"):
            farm.webhooks.add("ben", "http://example.com", ["job.x"])


def test_who_has_many_deliveries_due_is_passed_by(farm_settings):
    with contextlib.closing(Farm.open(farm_settings)) as farm:
        hooks = [farm.webhooks.add(user, "http://h", JOB_EVENTS) for user in ("ann", "ben")]
        for number in range(1, 40):
            farm.webhooks.make(f"{number}-1", [(hooks[0], "{}")])
        farm.webhooks.make("40-1", [(hooks[1], "{}")])

        def take(**under_way) -> list[str]:
            taken = farm.webhooks.take(8, of_user=2, busy_s=9.0, under_way=under_way)
            return [delivery.hook for delivery in taken]

        ann, ben = (hook.id for hook in hooks)
        assert take(ann=1) == [ann, ben]
        assert take() == []


def test_a_name_that_is_looked_for_too_long_is_given_up(monkeypatch):
    """Anybody's name server may decide how long that takes."""
    over, asked = threading.Event(), threading.Semaphore(0)

    def search(*_, **__):
        asked.release()
        over.wait(PATIENCE_S)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", search)
    monkeypatch.setattr(posting, "RESOLVE_S", 0.01)
    for _ in range(posting.MOST_LOOKUPS):
        with pytest.raises(UsageError, match=r"slow\.example was not resolved within 0\.01 s"):
            check_url("http://slow.example/", private=False, user="mal")
        asked.acquire()
    with pytest.raises(UsageError, match="earlier URLs are still being resolved"):
        check_url("http://slow.example/", private=False, user="mal")
    with pytest.raises(PostError, match="was not resolved within"):
        post("http://slow.example/", b"", {}, private=False, user="ann")
    over.set()
    monkeypatch.setattr(posting, "RESOLVE_S", PATIENCE_S)

    def is_free() -> bool:
        try:
            check_url("http://slow.example/", private=True, user="mal")
        except UsageError:
            return False
        return True

    wait_until(is_free)


def test_names_of_the_farm_s_network_are_not_told_from_others():
    """The refusal does not reveal the hosts within the network of the farm."""

    def refusal(host: str) -> str:
        with pytest.raises(UsageError) as caught:
            check_url(f"http://{host}/", private=False)
        return caught.value.message.replace(host, "HOST")

    assert refusal("localhost") == refusal("nothing.invalid")


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "[::1]", "[::]", "[fe80::1]", "[fd00::1]"),
        *("[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:7f00:1::]"),
        *("224.0.0.1", "2130706433", "0x7f.1", "127.1", "[2001:0:1::1]", "[fec0::1]"),
    ],
)
def test_no_address_but_public_ones_is_taken(host):
    with pytest.raises(UsageError, match=r"not public|cannot be resolved") as caught:
        check_url(f"http://{host}/", private=False)
    assert "FARRIER_WEBHOOK_PRIVATE" in caught.value.hint
    with pytest.raises(PostError, match=r"not public|cannot be resolved"):
        post(f"http://{host}:1/", b"", {}, private=False)


def test_public_addresses_are_taken():
    for text in ("8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"):
        assert posting._is_public(ipaddress.ip_address(text)), text


@pytest.mark.parametrize("name", ["all private", "one of them"])
def test_a_name_is_looked_at_and_used_once(monkeypatch, name):
    """A name that leads elsewhere at the second look gains nothing by it."""
    answers = [["127.0.0.1"] if name == "all private" else ["8.8.8.8", "127.0.0.1"]]

    def lookup(host, port, **_):
        addresses = answers[0]
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address_text, port))
            for address_text in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(PostError, match=r"evil\.example cannot be resolved, or has an address"):
        post("http://evil.example/", b"", {}, private=False)
    seen = []

    def connect(address, timeout):
        seen.append(address)
        raise OSError("enough")

    monkeypatch.setattr(socket, "create_connection", connect)
    answers[0] = ["8.8.8.8"]
    with pytest.raises(PostError, match="enough"):
        post("http://evil.example/", b"", {}, private=False)
    assert seen == [("8.8.8.8", 80)]  # This is not a name, which would be resolved again.


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://example.com",
        "//example.com",
        "http://",
        "http://u:p@example.com",
        "http://h:99999",
        "http://exa mple.com",
        "http://example.com/\r\nX: y",
        "http://h/" + "x" * 2001,
    ],
)
def test_what_is_no_url_is_refused(service, url):
    answer = service.http().post("/v1/webhooks", json={"url": url})
    assert answer.status_code == 400, answer.text


def test_private_hosts_are_refused_unless_they_are_allowed(start_service, farm_settings):
    http_client = start_service(farm_settings).http()
    answer = http_client.post("/v1/webhooks", json={"url": "http://127.0.0.1:6379/"})
    assert (answer.status_code, answer.json()["code"]) == (400, "usage")


def test_another_user_s_is_unknown(service, receiver):
    hook = add(service.http(), receiver.url)["id"]
    ann = client_of(service, "ann")
    for method, path in (("DELETE", ""), ("POST", "/ping")):
        assert ann.request(method, f"/v1/webhooks/{hook}{path}").status_code == 404
    assert service.http().delete(f"/v1/webhooks/{hook}").status_code == 204
    assert service.http().get("/v1/webhooks").json() == {"webhooks": []}
