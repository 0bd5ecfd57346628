"""Tokens, body sizes, error shapes, and the OpenAPI document."""

from __future__ import annotations

import re
import socket
import threading
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fastapi.openapi.utils import get_openapi

from farrier_farm.access.users import Users
from farrier_server.gate import LOGIN, OPEN_PATHS, WHO_AM_I
from farrier_server.problems import MEDIA_TYPE

OPEN = {LOGIN, WHO_AM_I, ("GET", "/healthz"), ("GET", "/readyz")}


def described(service) -> dict:
    """The OpenAPI document, which takes half a second to write, and more on a busy machine."""
    return httpx.get(f"{service.url}/openapi.json", timeout=60).json()


def routes(service) -> list[tuple[str, str]]:
    """Those of the OpenAPI document."""
    return [
        (method.upper(), path)
        for path, operations in described(service)["paths"].items()
        for method in operations
    ]


@pytest.mark.parametrize("token", [None, "wrong", "ünïcode", ""])
def test_every_route_wants_the_token(service, token):
    headers = {} if token is None else {"Authorization": f"Bearer {token}".strip().encode()}
    with httpx.Client(base_url=service.url, headers=headers) as http:
        guarded = set(routes(service)) - OPEN
        assert len(guarded) > 20
        for method, path in [*guarded, ("GET", "/v1/nothing"), ("GET", "/nothing"), ("POST", "/")]:
            answer = http.request(method, re.sub(r"{\w+}", "x", path))
            assert answer.status_code == 401, (method, path)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert answer.headers["content-type"] == MEDIA_TYPE
            if method != "HEAD":
                assert answer.json()["code"] == "authentication"


def test_a_user_s_token_counts_at_once_until_it_is_removed(service):
    users = Users(service.settings.home)
    with httpx.Client(base_url=service.url) as http:

        def status(token: str) -> int:
            http.headers["Authorization"] = f"Bearer {token}"
            return http.get("/v1/jobs").status_code

        ann, bob = users.add("ann"), users.add("bob")
        assert [status(token) for token in (ann, bob, service.token)] == [200] * 3
        users.remove("ann")
        assert [status(token) for token in (ann, bob, service.token)] == [401, 200, 200]
        (service.settings.home / "users.json").write_text("[]")
        assert [status(token) for token in (bob, service.token)] == [507, 200]


def test_a_request_with_two_tokens_has_none(service):
    """Two parties that read the same request may each read another of the two."""
    users = Users(service.settings.home)
    tokens = [users.add("ann"), service.token]
    for first, second in (tokens, reversed(tokens)):
        heads = [("Authorization", f"Bearer {token}") for token in (first, second)]
        answer = httpx.get(f"{service.url}/v1/account", headers=heads)
        assert answer.status_code == 401
        assert "2 Authorization headers" in answer.json()["detail"]


def test_the_token_is_judged_before_the_body(service):
    answer = httpx.post(f"{service.url}/v1/jobs", content=b"{")
    assert answer.status_code == 401


def test_health_needs_no_token(service):
    for path in ("/healthz", "/readyz"):
        assert httpx.get(service.url + path).json() == {"status": "ok"}


def test_large_bodies_are_refused(service):
    http = service.http()
    big = b" " * ((1 << 20) + 1)
    for content in (big, iter([big[:1000], big])):
        answer = http.post("/v1/jobs", content=content)
        assert answer.status_code == 413
        assert answer.headers["content-type"] == MEDIA_TYPE


def test_large_headers_are_refused(service):
    where = urllib.parse.urlsplit(service.url)
    with socket.create_connection((where.hostname, where.port), 10) as link:
        link.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Large: ")
        link.sendall(b"x" * 40_000)  # The header does not end.
        assert link.recv(100).startswith(b"HTTP/1.1 400")


def test_unknown_routes_and_methods_are_problems(service):
    http = service.http()
    assert http.get("/v1/nothing").json()["code"] == "not-found"
    assert http.get("/v1/nothing").status_code == 404
    assert http.get("/v1/jobs/").json()["code"] == "not-found"
    answer = http.delete("/v1/jobs")
    assert answer.status_code == 405
    assert answer.headers["content-type"] == MEDIA_TYPE


def test_defects_leak_no_traceback(service, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(type(service.farm.devices), "page", fail)
    answer = service.http().get("/v1/devices")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert "secret" not in answer.text
    assert answer.json()["code"] == "internal"


def test_the_api_answers_while_its_document_is_written_once(service, monkeypatch):
    begun, go_on, times = threading.Event(), threading.Event(), []

    def slowly(**about):
        times.append(1)
        begun.set()
        assert go_on.wait(60)
        return get_openapi(**about)

    monkeypatch.setattr("farrier_server.app.get_openapi", slowly)
    with ThreadPoolExecutor() as pool:
        documents = [pool.submit(described, service) for _ in range(3)]
        try:
            assert begun.wait(60)
            assert httpx.get(f"{service.url}/healthz", timeout=20).status_code == 200
        finally:
            go_on.set()
        assert [future.result()["info"]["title"] for future in documents] == ["Farrier"] * 3
    assert len(times) == 1


def test_documentation_says_of_every_route_whether_it_needs_a_token(service):
    document = described(service)
    assert set(routes(service)) >= OPEN
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["description"]
            is_guarded = (method.upper(), path) not in OPEN - {WHO_AM_I}
            assert bool(operation.get("security")) == is_guarded
            assert ("401" in operation["responses"]) == (path not in OPEN_PATHS)
    assert "Problem" in document["components"]["schemas"]
