"""Pages and their files: who gets what, under which headers; nothing comes from another host."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import re
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from farrier_farm.settings import Settings
from farrier_server.dashboard import vendored
from farrier_server.dashboard.serving import PAGES, Dashboard
from farrier_server.dashboard.site import MEDIA_TYPES, STATIC
from farrier_server.problems import MEDIA_TYPE

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
OWN = sorted(p for p in STATIC.rglob("*") if p.is_file() and "vendor" not in p.parts)
# Scheme-relative addresses count too. Names of XML namespaces, and the default address of the
# server, are texts that are never fetched.
ANOTHER_HOST = re.compile(r"""(?:https?:)?//[\w-]+\.[\w.-]+|@import|\bwss?://""")
TEXTS = ("http://www.w3.org/", Settings().server)


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[str] = []
        self.within = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.within = tag if not dict(attributes).get("src") else ""

    def handle_endtag(self, tag):
        self.within = ""

    def handle_data(self, data):
        if self.within == "script":
            self.inline.append(data)

    @property
    def named(self) -> list[str]:
        """The URLs that the page loads."""
        return [
            a.get("src") or a.get("href") or ""
            for tag, a in self.tags
            if tag in ("script", "link", "img")
            if "src" in a or "href" in a
        ]


@pytest.mark.parametrize("path", [re.sub(r"{\w+}", "j-1", page) for page in PAGES] + ["/docs"])
def test_a_page_needs_no_token_and_runs_nothing_else(service, path):
    answer = httpx.get(service.url + path, headers=BROWSER)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(
        directive.strip().partition(" ")[::2]
        for directive in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == policy["style-src"] == policy["worker-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    tags = Tags(answer.text)
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in tags.inline
    ]
    assert policy["script-src"].split() == ["'self'", *hashes]
    assert not [a for _, a in tags.tags if "style" in a or any(n.startswith("on") for n in a)]
    for name, value in {
        "x-content-type-options": "nosniff",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "same-origin",
    }.items():
        assert answer.headers[name] == value


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_what_a_page_loads_is_there_and_kept_for_ever(service, path):
    page = httpx.get(service.url + path)
    tags = Tags(page.text)
    imports = re.findall(r'"(/assets/[^"]+)"', "".join(tags.inline))
    assert len(tags.named) > 2
    for named in tags.named + imports:
        answer = httpx.get(service.url + named)
        assert answer.status_code == 200, named
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"] == MEDIA_TYPES[Path(named).suffix]


def test_a_path_that_is_no_page_is_one_to_a_browser_and_a_problem_to_a_program(service):
    for path in ("/nothing", "/jobs/a/b/c", "/index.html", "/v2/x"):
        page = httpx.get(service.url + path, headers=BROWSER)
        assert (page.status_code, page.text) == (404, httpx.get(service.url).text)
        program = service.http().get(path)
        assert program.status_code == 404
        assert program.headers["content-type"] == MEDIA_TYPE
    for path in ("/v1/jobs", "/v1/nothing", "/metrics"):
        answer = httpx.get(service.url + path, headers=BROWSER)
        assert (answer.status_code, answer.headers["content-type"]) == (401, MEDIA_TYPE)


def test_answers_of_the_api_are_no_pages(service):
    answer = service.http().get("/v1/jobs")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/",
        "/assets/nothing.js",
        "/assets/index.html",
        "/assets/app",
        "/assets/../site.py",
        "/assets/%2e%2e/site.py",
        "/assets/..%2fsite.py",
        "/assets/app/../../site.py",
        "/assets//etc/passwd",
        "/assets/%2fetc%2fpasswd",
        "/assets/..%5csite.py",
        "/assets/app/main.js%00",
        "/assets/0123456789abcdef/app/main.js",
    ],
)
def test_only_what_is_listed_is_served(service, path):
    """Sent as it stands: httpx would resolve the dots."""
    where = urllib.parse.urlsplit(service.url)
    link = http.client.HTTPConnection(where.hostname, where.port, timeout=10)
    link.request("GET", path)
    answer = link.getresponse()
    assert answer.status == 404
    assert answer.getheader("content-type") == MEDIA_TYPE
    link.close()


def test_head_and_conditional_requests_send_no_body(service):
    url = f"{service.url}/assets/vendor/uplot/uPlot.esm.js"
    content = (STATIC / "vendor/uplot/uPlot.esm.js").read_bytes()
    plain = httpx.get(url, headers={"Accept-Encoding": "identity"})
    assert plain.content == content
    assert plain.headers["cache-control"] == "no-cache"
    packed = httpx.get(url, headers={"Accept-Encoding": "br, gzip;q=0.5"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == content  # unpacked
    assert int(packed.headers["content-length"]) < len(content) / 2
    assert plain.headers["etag"] != packed.headers["etag"]
    for encoding, first_answer in (("identity", plain), ("gzip", packed)):
        headers = {"Accept-Encoding": encoding}
        head = httpx.head(url, headers=headers)
        assert head.content == b""
        assert head.headers["content-length"] == first_answer.headers["content-length"]
        tag = first_answer.headers["etag"]
        for condition in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            same = httpx.get(url, headers={**headers, "If-None-Match": condition})
            assert (same.status_code, same.content) == (304, b"")
            assert same.headers["etag"] == tag
        other = httpx.get(url, headers={**headers, "If-None-Match": '"x"'})
        assert other.status_code == 200
    refused = httpx.get(url, headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers


def test_an_update_is_served_as_one_version_without_a_restart(tmp_path):
    index = '<link href="/assets/a.css"><script src="/assets/b.js">'
    for name, text in {"index.html": index, "docs.html": "", "a.css": "a{}", "b.js": "1"}.items():
        (tmp_path / name).write_text(text)

    async def api(scope, receive, send):
        raise AssertionError(scope["path"])

    transport = httpx.ASGITransport(Dashboard(api, tmp_path))

    async def ask(*paths: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as http_client:
            return [await http_client.get(path) for path in paths]

    def named() -> list[str]:
        (page,) = asyncio.run(ask("/jobs"))
        return re.findall(r'"(/assets/[^"]+)"', page.text)

    before = named()
    assert len({path.rsplit("/", 1)[0] for path in before}) == 1
    (tmp_path / "b.js").write_text("12")
    css, js = asyncio.run(ask(*before))
    assert (css.text, js.text) == ("a{}", "1")  # No page has been requested since.
    after = named()
    assert after != before
    old, new = asyncio.run(ask(before[1], after[1]))
    assert (old.status_code, new.text) == (404, "12")
    assert "reload the page" in old.json()["hint"]
    (tmp_path / "index.html").unlink()  # half an update
    assert named() == after


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_own_files_load_what_is_there_and_nothing_of_another_host(path):
    text = path.read_text()
    for text_of_license in TEXTS:
        text = text.replace(text_of_license, "")
    assert not ANOTHER_HOST.findall(text)
    assert path.suffix in MEDIA_TYPES
    named = re.findall(r"""(?:\bfrom|\bimport|\bimport\()\s*["']([^"']+)["']""", text)
    named += re.findall(r"""new URL\(\s*["']([^"']+)["']\s*,\s*import\.meta\.url""", text)
    mapped = re.findall(r'"([\w/-]+)": "/assets/', (STATIC / "index.html").read_text())
    for module in named if path.suffix == ".js" else []:
        if module.startswith("."):
            assert (path.parent / module).resolve().is_file(), module
        else:
            assert module in mapped


def test_every_file_has_a_type():
    assert {path.suffix for path in STATIC.rglob("*") if path.is_file()} <= MEDIA_TYPES.keys()


def test_vendored_files_are_those_of_the_manifest():
    assert vendored.complaints() == []
    names = {package.name for package in vendored.packages()}
    assert {"preact", "htm", "uplot", "@dagrejs/dagre", "swagger-ui-dist"} <= names
    for package in vendored.packages():
        assert re.fullmatch(r"\d+\.\d+\.\d+", package.version)
        assert package.license in ("MIT", "Apache-2.0", "BSD-3-Clause", "ISC")
        texts = [(vendored.FOLDER / path).read_text() for path in package.license_files]
        assert any(len(text) > 1000 for text in texts), package.name


def test_what_is_wrong_with_vendored_files_is_told(tmp_path):
    for package in vendored.packages():
        for file in package.files:
            target = tmp_path / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((vendored.FOLDER / file.path).read_bytes())
    (tmp_path / "htm/htm.mjs").write_text("changed")
    (tmp_path / "preact/LICENSE").unlink()
    (tmp_path / "more.js").touch()
    complaints = vendored.complaints(tmp_path)
    assert len(complaints) == 3
    for path in ("htm/htm.mjs has", "preact/LICENSE is missing", "more.js is not in"):
        assert any(sentence.startswith(path) for sentence in complaints)
