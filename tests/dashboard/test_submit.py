"""From a model's file to its job: chosen or dropped, by the mouse or by the keyboard alone."""

from __future__ import annotations

import base64
import re

import pytest
from playwright.sync_api import expect

from tests.dashboard.looks import settle
from tests.up import write_model

pytestmark = pytest.mark.browser

SOON_MS = 60_000


@pytest.fixture
def model(tmp_path):
    """A small model that the server does not have yet."""
    return write_model(tmp_path / "mine.onnx", seed=int.from_bytes(str(tmp_path).encode()) % 10_000)


@pytest.fixture(autouse=True)
def job_of_the_test(page, up, once_closed):
    """The job that the test has submitted is deleted, if there is one."""
    yield
    match = re.search(r"/jobs/([\w.:-]+)$", page.url)
    if match:
        client = once_closed.enter_context(up.client())
        once_closed.callback(client.delete, match[1])


def choose(page, path):
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose files").click()
    chooser.value.set_files(path)


def submitted(page):
    """Return the job that the form has submitted, from the API."""
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/jobs/[\w.:-]+$"))
    settle(page)
    return page.context.request.get(page.url.replace("/jobs/", "/v1/jobs/")).json()


def test_a_chosen_file_becomes_a_job(page, model):
    page.goto("/submit")
    choose(page, model)
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_enabled(timeout=SOON_MS)
    page.get_by_label("Shape of x").fill("1, 3, 13, 17", timeout=SOON_MS)
    page.get_by_label("Time to tune").fill("")
    page.get_by_label("Candidates to measure").fill("8")
    command = page.get_by_role("region", name="Command line").inner_text()
    job = submitted(page)
    assert job["options"]["shapes"] == {"x": [1, 3, 13, 17]}
    assert job["options"]["trials"] == 8
    assert job["name"] == "mine.onnx"
    for words in ("farrier submit", "mine.onnx", "--trials 8", "1,3,13,17"):
        assert words in command
    expect(page.locator(".state", has_text="succeeded").first).to_be_visible(timeout=SOON_MS)


def test_a_dropped_file_is_taken(page, model):
    page.goto("/submit")
    dropped = page.evaluate_handle(
        """([text, name]) => {
            const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
            const data = new DataTransfer();
            data.items.add(new File([bytes], name));
            return data;
        }""",
        [base64.b64encode(model.read_bytes()).decode(), model.name],
    )
    zone = page.get_by_text("Drop an ONNX model here")
    zone.dispatch_event("dragover", {"dataTransfer": dropped})
    zone.dispatch_event("drop", {"dataTransfer": dropped})
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_enabled(timeout=SOON_MS)
    expect(page.get_by_label("Shape of x")).to_be_visible(timeout=SOON_MS)


def test_a_file_that_is_no_model_says_so_beside_it(page, tmp_path):
    path = tmp_path / "notes.onnx"
    path.write_text("These are notes, and no model.")
    page.goto("/submit")
    choose(page, path)
    verdict = page.get_by_text("This file is no model that Farrier reads.")
    expect(verdict).to_be_visible(timeout=SOON_MS)
    expect(page.get_by_text("truncated, or not protobuf")).to_be_visible()
    expect(page.get_by_text("Written by")).to_have_count(0)


def test_host_is_no_choice_among_several_classes(page, network, api):
    classes = api.get("/v1/classes").json()
    (here, *_) = (device_class for device_class in classes["classes"] if device_class["connected"])
    classes["classes"].append({**here, "id": "c" * len(here["id"])})
    page.route("**/v1/classes", lambda route: route.fulfill(json=classes))
    page.goto("/submit")
    target = page.get_by_label("Target", exact=True)
    expect(target.locator("option:checked")).to_have_text("host: of several connected classes none")
    expect(page.get_by_text("2 are connected: choose one of them")).to_be_visible()
    choose(page, network)
    submit = page.get_by_role("button", name="Submit", exact=True)
    expect(page.get_by_text("Farrier compiles this model.")).to_be_visible(timeout=SOON_MS)
    expect(submit).to_be_disabled()
    target.select_option(f"class:{here['id']}")
    expect(submit).to_be_enabled()


def test_a_budget_that_cannot_be_read_is_told_at_its_field(page, network):
    page.goto("/submit")
    page.get_by_label("Time to tune").fill("a while")
    expect(page.locator("#budget-error, .field-error").first).to_be_visible()
    choose(page, network)
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()


def test_the_keyboard_alone_gets_from_the_login_to_a_job(visit, up, model):
    page = visit(up, logged_in=False)
    page.goto("/submit")
    tab_to(page, page.get_by_label("Token"))
    page.keyboard.type(up.token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Submit a model")).to_be_visible()
    tab_to(page, page.get_by_role("button", name="Choose files"))
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(model)
    button = page.get_by_role("button", name="Submit", exact=True)
    expect(button).to_be_enabled(timeout=SOON_MS)
    tab_to(page, button)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/jobs/[\w.:-]+$"))
    settle(page)
    tab_to(page, page.get_by_role("button", name="Delete"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def tab_to(page, control):
    """Press Tab until the control has the focus, which is to be seen at each stop."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if control.evaluate("(one) => one === document.activeElement"):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", "the focus is not to be seen"
            return
    raise AssertionError(f"Tab does not reach {control}")
