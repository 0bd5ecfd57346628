"""Sessions of browsers: what opens one, what each request of it has to say, and what ends it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import http.cookies
import json
import ssl
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from farrier.options import CompileOptions
from farrier_farm.access.users import Role, Users
from farrier_server import gate
from farrier_server.problems import MEDIA_TYPE
from tests.here import TARGET

CSRF = "X-CSRF-Token"


@pytest.fixture
def browser(service):
    """Cookies, and no token."""
    with httpx.Client(base_url=service.url, timeout=30) as http:
        yield http


def log_in(http, token):
    answer = http.post("/v1/session", json={"token": token})
    assert answer.status_code == 200, answer.text
    return answer


def refused(answer, status, code):
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    return answer.json()["detail"]


def test_a_session_does_what_its_token_does(service, browser):
    token = Users(service.settings.home).add("ann")
    nobody = browser.get("/v1/session")
    assert (nobody.status_code, nobody.content) == (204, b"")
    opened = log_in(browser, token).json()
    assert (opened["owner"], opened["role"], opened["group"]) == ("ann", "user", "")
    assert 0 < opened["expires"] - time.time() <= 12 * 3600
    assert browser.get("/v1/session").json() == opened
    assert browser.get("/v1/jobs").json()["jobs"] == []
    size = {"size": 3, "sha256": "0" * 64}
    begun = browser.post("/v1/uploads", json=size, headers={CSRF: opened["csrf"]})
    assert begun.status_code < 300
    assert "no session" in refused(service.http().get("/v1/session"), 401, "authentication")


def test_a_script_cannot_read_the_cookie_and_no_other_site_sends_it(service, browser):
    answer = log_in(browser, service.token)
    (cookie,) = http.cookies.SimpleCookie(answer.headers["set-cookie"]).values()
    assert cookie["httponly"]
    assert cookie["samesite"].lower() == "strict"
    assert (cookie["path"], cookie["domain"]) == ("/", "")
    assert 12 * 3600 - 60 < int(cookie["max-age"]) <= 12 * 3600
    assert not cookie["secure"]
    assert service.token not in cookie.value
    assert answer.headers["cache-control"] == "no-store"
    # A proxy that ends TLS: the browser's own connection is what counts.
    host = httpx.URL(service.url).netloc.decode()
    answer = browser.post(
        "/v1/session", json={"token": service.token}, headers={"Origin": f"https://{host}"}
    )
    assert "Secure" in answer.headers["set-cookie"]


def test_under_tls_the_cookie_is_secure(farm_settings, start_service, certificate):
    cert, key = certificate
    settings = dataclasses.replace(farm_settings, tls_cert=cert, tls_key=key)
    service = start_service(settings)
    trusted = ssl.create_default_context(cafile=str(cert))
    with httpx.Client(base_url=service.url, verify=trusted) as http_client:
        assert "Secure" in log_in(http_client, service.token).headers["set-cookie"]
        assert http_client.get("/v1/session").status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"token": "wrong"}, 401, "authentication"),
        ({"token": ""}, 401, "authentication"),
        ({"token": "ünïcode"}, 401, "authentication"),
        ({}, 400, "usage"),
        ({"token": 3}, 400, "usage"),
        ({"token": "x" * 2000}, 400, "usage"),
        ({"token": "x" * 5000}, 413, "invalid-model"),
    ],
)
def test_a_login_with_no_token_is_refused(browser, body, status, code):
    answer = browser.post("/v1/session", json=body)
    refused(answer, status, code)
    assert "set-cookie" not in answer.headers


def test_what_changes_something_says_the_csrf_token(service, browser):
    csrf = log_in(browser, service.token).json()["csrf"]
    with httpx.Client(base_url=service.url) as another:
        others = log_in(another, service.token).json()["csrf"]
    assert others != csrf
    for headers in ({}, {CSRF: ""}, {CSRF: "ü".encode()}, {CSRF: others}, {CSRF: csrf[:-1]}):
        for method, path in [
            ("POST", "/v1/jobs"),
            ("PATCH", "/v1/uploads/u"),
            ("DELETE", "/v1/jobs/j"),
            ("DELETE", "/v1/session"),
            ("POST", "/v1/nothing"),
        ]:
            detail = refused(browser.request(method, path, headers=headers), 403, "csrf")
            assert CSRF in detail
    answer = browser.delete("/v1/jobs/j", headers={CSRF: csrf})
    assert answer.status_code == 404
    # A browser never sends a token in the header by itself, so the request needs nothing more.
    answer = browser.delete("/v1/jobs/j", headers={"Authorization": f"Bearer {service.token}"})
    assert answer.status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
def test_another_site_changes_nothing_and_opens_no_session(service, browser, headers):
    csrf = log_in(browser, service.token).json()["csrf"]
    detail = refused(browser.delete("/v1/jobs/j", headers={**headers, CSRF: csrf}), 403, "csrf")
    assert "another site" in detail
    body = {"token": service.token}
    refused(browser.post("/v1/session", json=body, headers=headers), 403, "csrf")
    own = {"Origin": service.url, "Sec-Fetch-Site": "same-origin"}
    assert browser.delete("/v1/jobs/j", headers={**own, CSRF: csrf}).status_code == 404
    assert browser.post("/v1/session", json=body, headers=own).status_code == 200


def test_a_logout_ends_copies_of_the_cookie_and_no_other_session(service, browser):
    csrf = log_in(browser, service.token).json()["csrf"]
    copy = dict(browser.cookies)
    with httpx.Client(base_url=service.url) as another:
        log_in(another, service.token)
        answer = browser.delete("/v1/session", headers={CSRF: csrf})
        assert answer.status_code == 204
        assert not dict(browser.cookies)
        with httpx.Client(base_url=service.url, cookies=copy) as thief:
            assert "logged out" in refused(thief.get("/v1/jobs"), 401, "session-expired")
            refused(thief.get("/v1/session"), 401, "session-expired")
        assert another.get("/v1/jobs").status_code == 200
    keys = service.farm.client.command("KEYS", "farrier:logout:*")
    assert len(keys) == 1
    assert 0 < service.farm.client.command("TTL", keys[0]) <= 12 * 3600 + 2


def test_a_session_expires(farm_settings, start_service):
    service = start_service(dataclasses.replace(farm_settings, session_s=2.0))
    with httpx.Client(base_url=service.url) as http_client:
        log_in(http_client, service.token)
        copy = dict(http_client.cookies)
        assert http_client.get("/v1/jobs").status_code == 200
        time.sleep(2.1)
    with httpx.Client(base_url=service.url, cookies=copy) as http_client:
        assert "expired" in refused(http_client.get("/v1/jobs"), 401, "session-expired")
        assert httpx.get(service.url).status_code == 200


def test_a_session_ends_with_its_token(service, browser):
    users = Users(service.settings.home)
    log_in(browser, users.add("ann"))
    assert browser.get("/v1/jobs").status_code == 200
    users.remove("ann")
    assert "removed" in refused(browser.get("/v1/jobs"), 401, "session-expired")
    users.add("ann")  # another token
    refused(browser.get("/v1/jobs"), 401, "session-expired")


def test_sessions_outlive_the_server_and_end_with_the_installation_s_token(
    farm_settings, start_service
):
    first = start_service(farm_settings)
    with httpx.Client(base_url=first.url) as http_client:
        log_in(http_client, first.token)
        cookies = dict(http_client.cookies)
    again = start_service(farm_settings)
    assert httpx.get(f"{again.url}/v1/jobs", cookies=cookies).status_code == 200
    changed = start_service(dataclasses.replace(farm_settings, token="another"))
    refused(httpx.get(f"{changed.url}/v1/jobs", cookies=cookies), 401, "session-expired")


def test_a_cookie_that_was_written_by_hand_opens_nothing(service, browser):
    log_in(browser, service.token)
    ((name, value),) = dict(browser.cookies).items()
    version, payload, signature = value.split(".")
    fields = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))

    def packed(**changes) -> str:
        return base64.urlsafe_b64encode(json.dumps({**fields, **changes}).encode()).decode()

    Users(service.settings.home).add("ann")
    for forged in (
        "",
        "x",
        "v1..",
        f"v2.{payload}.{signature}",
        f"{version}.{payload}.{signature[:-1]}",
        f"{version}.{payload}.",
        f"{version}.{packed(owner='ann')}.{signature}",
        f"{version}.{packed(owner='nobody')}.{signature}",
        f"{version}.{packed(expires=1e300)}.{signature}",
        f"{version}.{packed(expires=float('nan'))}.{signature}",
        f"{version}.{packed(expires='x')}.{signature}",
        f"{version}.{base64.urlsafe_b64encode(b'[' * 2000).decode()}.{signature}",
    ):
        with httpx.Client(base_url=service.url, cookies={name: forged}) as thief:
            answer = thief.get("/v1/jobs")
            assert answer.status_code == 401, forged
            assert answer.json()["code"] == ("session-expired" if forged else "authentication")


def test_without_redis_a_session_is_no_stranger(installation, farm_settings, start_service):
    service = start_service(farm_settings)
    with httpx.Client(base_url=service.url, timeout=60) as http_client:
        log_in(http_client, service.token)
        installation.stop_redis()
        try:
            refused(http_client.get("/v1/session"), 503, "service")
        finally:
            installation.start_redis()


@pytest.mark.parametrize("kind", ["session", "token"])
def test_an_event_stream_ends_with_what_opened_it(service, browser, monkeypatch, kind):
    monkeypatch.setattr(gate, "STREAM_CHECK_S", 0.1)
    users = Users(service.settings.home)
    token = users.add("ann", Role.OPERATOR)  # Operators receive warnings.
    headers = {"Authorization": f"Bearer {token}"} if kind == "token" else {}
    if kind == "session":
        log_in(browser, token)
    ended = threading.Event()
    heard: list[str] = []

    def watch() -> None:
        with browser.stream("GET", "/v1/events", headers=headers) as stream:
            heard.extend(stream.iter_lines())
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    for _ in range(10):  # These take longer than the interval of checks.
        service.farm.news.warn("test", "before")
        time.sleep(0.1)
    assert not ended.is_set()
    users.remove("ann")
    time.sleep(0.5)  # The next event comes after a check has expired.
    for _ in range(100):
        service.farm.news.warn("test", "after")
        if ended.wait(0.2):
            break
    assert ended.is_set()
    assert any("before" in line for line in heard)
    assert not any("after" in line for line in heard)


@pytest.mark.parametrize("kind", ["session", "token"])
def test_uploads_and_downloads_end_with_what_opened_them(service, browser, monkeypatch, kind):
    """However long a file takes, its bytes are nobody's whose token counts no more."""
    monkeypatch.setattr(gate, "STREAM_CHECK_S", 0.05)
    users, farm = Users(service.settings.home), service.farm

    def opened() -> dict[str, str]:
        token = users.add("ann")
        if kind == "token":
            return {"Authorization": f"Bearer {token}"}
        return {CSRF: log_in(browser, token).json()["csrf"]}

    headers = opened()
    farm.jobs.submit(farm.blobs.put(b"m"), CompileOptions(target=TARGET, verify=False), owner="ann")
    # The sockets hold less than this on the way.
    size = 64 << 20
    farm.jobs.succeed(lease := farm.jobs.lease("w", 1), farm.blobs.put(bytes(size)), {}, size)
    with browser.stream("GET", f"/v1/jobs/{lease.item}/artifact", headers=headers) as download:
        pieces = download.iter_bytes(1 << 16)
        next(pieces)
        users.remove("ann")
        time.sleep(0.1)
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
    headers = opened()
    body = {"size": 1 << 20, "sha256": hashlib.sha256(bytes(1 << 20)).hexdigest()}
    upload = browser.post("/v1/uploads", json=body, headers=headers).json()["id"]

    def sent() -> Iterator[bytes]:
        yield bytes(1 << 19)
        users.remove("ann")
        time.sleep(0.1)
        yield bytes(1 << 19)

    headers["Upload-Offset"] = "0"
    answer = browser.patch(f"/v1/uploads/{upload}", content=sent(), headers=headers)
    refused(answer, 401, "authentication" if kind == "token" else "session-expired")
    assert farm.blobs.upload(upload).offset == 0


def test_the_document_describes_the_session(service, browser):
    document = service.http().get("/openapi.json").json()
    scheme = document["components"]["securitySchemes"]["Session"]
    log_in(browser, service.token)
    (name,) = dict(browser.cookies)
    assert (scheme["type"], scheme["in"], scheme["name"]) == ("apiKey", "cookie", name)
    assert CSRF in scheme["description"]
    wanted = [
        list(requirement) for requirement in document["paths"]["/v1/jobs"]["post"]["security"]
    ]
    assert wanted == [["HTTPBearer"], ["Session"]]
    assert "security" not in document["paths"]["/v1/session"]["post"]
