"""The way in, by a token, and out again."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def log_in(page, token):
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def test_the_token_opens_the_page_that_was_asked_for(visit, up):
    page = visit(up, logged_in=False)
    page.goto("/devices")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    log_in(page, up.token)
    expect(page.get_by_role("heading", name="Devices", level=1)).to_be_visible()
    assert page.url == f"{up.url}/devices"
    page.reload()
    expect(page.get_by_role("heading", name="Devices", level=1)).to_be_visible()


def test_a_wrong_token_is_told_so(visit, up):
    page = visit(up, logged_in=False)
    page.watch.expect("console: .*401")
    page.goto("/")
    log_in(page, "not-the-token")
    expect(page.get_by_role("alert")).to_contain_text(re.compile("token", re.IGNORECASE))
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_the_script_of_a_page_cannot_read_the_session(page):
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert cookie["value"] not in page.evaluate(
        "document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)"
    )


def test_logging_out_ends_the_session_of_the_cookie(page, up):
    page.goto("/jobs")
    cookies = page.context.cookies()
    page.watch.expect("console: .*401")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.context.add_cookies(cookies)
    assert page.context.request.get("/v1/session").status == 401


def test_a_session_that_is_over_says_so_and_the_page_goes_on_after_the_login(page, up):
    page.goto("/devices/local")
    expect(page.get_by_role("heading", name="local", level=1)).to_be_visible()
    page.watch.expect("console: .*401")
    page.context.clear_cookies()
    page.reload()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    log_in(page, up.token)
    expect(page.get_by_role("heading", name="local", level=1)).to_be_visible()
    page.context.request.delete("/v1/session", headers={"X-CSRF-Token": csrf(page)})
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page.get_by_role("status").first).to_contain_text("goes on where it was")
    log_in(page, up.token)
    expect(page.get_by_role("heading", name="local", level=1)).to_be_visible()


def csrf(page):
    """The headers that a request with changes has to carry."""
    return page.context.request.get("/v1/session").json()["csrf"]
