"""Users and tokens: what a page offers is what its reader may do."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from farrier.sdk.client import Client
from farrier_farm.access.users import Role, Users
from tests.dashboard.conftest import SHAPES
from tests.dashboard.test_login import log_in

pytestmark = pytest.mark.browser


def test_an_admin_adds_rotates_and_removes_a_user(page, up):
    page.goto("/users")
    page.get_by_label("Name", exact=True).fill("ann-of-the-page")
    page.get_by_label("Group").fill("vision")
    page.get_by_role("button", name="Make a token").click()
    token = page.get_by_role("region", name="Token").inner_text().strip()
    with Client(up.url, token) as ann:
        assert (ann.users.me().name, ann.users.me().group) == ("ann-of-the-page", "vision")
    row = page.get_by_role("row", name="ann-of-the-page")
    expect(row).to_contain_text("vision")
    row.get_by_role("button", name="New token").click()
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("region", name="Token")).not_to_contain_text(token)
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)


def test_a_user_is_offered_what_they_may_do(visit, up, network):
    """Their own jobs, and no word of others'."""
    with up.client() as client:
        other = client.submit(network, shapes=SHAPES, name="of the admin").id
        client.wait(other)
    token = Users(up.home).add("ben-of-the-page")
    with Client(up.url, token) as ben:
        own = ben.submit(network, shapes=SHAPES, name="of ben").id
        ben.wait(own)
    page = visit(up, logged_in=False)
    page.goto("/jobs")
    log_in(page, token)
    expect(page.get_by_role("link", name="of ben")).to_be_visible()
    expect(page.get_by_text("of the admin")).to_have_count(0)
    expect(page.get_by_role("navigation").get_by_role("link", name="Users")).to_have_count(0)
    page.goto(f"/jobs/{own}")
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    page.watch.expect("console: .*404", "console: .*403")
    page.goto(f"/jobs/{other}")
    expect(page.get_by_role("heading", name="No such job")).to_be_visible()
    page.goto("/users")
    expect(page.get_by_role("alert").first).to_contain_text("needs the role operator")


def test_an_operator_sees_how_a_job_stands(visit, up, network):
    with up.client() as client:
        other = client.submit(network, shapes=SHAPES, name="another one of the admin").id
        client.wait(other)
    page = visit(up, logged_in=False)
    page.watch.expect("console: .*403")
    page.goto(f"/jobs/{other}")
    log_in(page, Users(up.home).add("bob-of-the-page", Role.OPERATOR))
    expect(page.get_by_text("This job is a job of default")).to_be_visible()
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    expect(page.get_by_role("link", name="Download")).to_have_count(0)
    page.get_by_role("navigation").get_by_role("link", name="Users").click()
    expect(page.get_by_role("row", name="bob-of-the-page")).to_be_visible()
    expect(page.get_by_role("button", name="Make a token")).to_have_count(0)
