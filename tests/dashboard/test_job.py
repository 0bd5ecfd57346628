"""Tests of a job's page: its curve moves; it is cancelled, downloaded, deleted, compared; and it,
its server or the connection goes away."""

from __future__ import annotations

import re
import signal

import pytest
from playwright.sync_api import expect

from farrier.errors import InvalidModelError
from farrier.sdk.client import Client
from farrier_farm.access.users import Users
from tests.dashboard.conftest import SHAPES, Proxy
from tests.dashboard.looks import settle
from tests.waiting import wait_until

pytestmark = pytest.mark.browser

CUT = re.compile("connection to the server is cut|cannot be reached|does not answer")
SOON_MS = 60_000


def trials_drawn(page):
    """The count of trials that the curve of the model goes to; 0 while there is none."""
    charts = page.get_by_role("img", name=re.compile("Model, estimated over trials"))
    if not charts.count():
        return 0
    said = charts.first.get_attribute("aria-label")
    return int(re.search(r"after ([\d\u202f]+)", said)[1].replace("\u202f", ""))


def test_the_curve_moves(page, running):
    page.goto(f"/jobs/{running}")
    first = wait_until(lambda: trials_drawn(page))
    wait_until(lambda: trials_drawn(page) > first)


def test_it_is_cancelled(page, running, api):
    page.goto(f"/jobs/{running}")
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("button", name="Keep it").click()
    assert api.get(f"/v1/jobs/{running}").json()["state"] in ("queued", "running")
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator(".state", has_text="cancelled").first).to_be_visible()
    expect(page.get_by_role("button", name="Cancel job")).to_have_count(0)
    assert api.get(f"/v1/jobs/{running}").json()["state"] == "cancelled"


def test_its_artifact_is_downloaded(page, finished, api, tmp_path):
    page.goto(f"/jobs/{finished[0]}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    download.value.save_as(tmp_path / "got.farrier")
    artifact = api.get(f"/v1/jobs/{finished[0]}/artifact")
    assert (tmp_path / "got.farrier").read_bytes() == artifact.content
    assert download.value.suggested_filename.endswith(".farrier")


def test_an_earlier_version_is_put_into_use(page, up, network, api):
    with up.client() as client:
        job = client.submit(network, shapes=SHAPES, trials=16, now=True, name="by versions").id
        client.wait(job)
    number_of_versions = len(api.get(f"/v1/jobs/{job}").json()["versions"])
    page.goto(f"/jobs/{job}?tab=report")
    rows = page.get_by_role("region", name="Versions").get_by_role("row")
    expect(rows).to_have_count(1 + number_of_versions)
    first = rows.last
    if number_of_versions > 1:
        expect(first).not_to_contain_text("in use")
        first.get_by_role("button", name="Use").click()
    else:  # Tuning brought nothing better; keeping the version in use has the same effect.
        assert api.post(f"/v1/jobs/{job}/rollback", json={"to": 1}).status_code == 200
        page.reload()
    expect(first).to_contain_text("kept in use")
    with page.expect_download() as download:
        first.get_by_role("link", name="Download").click()
    artifact = api.get(f"/v1/jobs/{job}/artifact")
    assert download.value.path().read_bytes() == artifact.content
    assert api.get(f"/v1/jobs/{job}").json()["version_is_kept"]


def test_it_is_deleted(page, up, network, api):
    with up.client() as client:
        job = client.submit(network, shapes=SHAPES, name="to be deleted").id
        client.wait(job)
    page.goto(f"/jobs/{job}")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete the job").click()
    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    assert api.get(f"/v1/jobs/{job}").status_code == 404


def test_one_that_is_deleted_while_watched_says_so(page, up, deep_network):
    with up.client() as client:
        job = client.submit(deep_network, shapes=SHAPES, trials=100_000, name="watched").id
        page.goto(f"/jobs/{job}")
        wait_until(lambda: trials_drawn(page))
        page.watch.expect("console: .*404")
        client.delete(job)
    expect(page.get_by_text("This job is there no more.")).to_be_visible(timeout=SOON_MS)


def test_another_users_private_one_shows_how_it_stands(page, up, network):
    ann = Client(up.url, Users(up.home).add("ann-of-private-jobs"))
    with ann:
        job = ann.submit(network, shapes=SHAPES, name="of ann", private=True)
        ann.wait(job.id)
    page.watch.expect("console: .*403")  # The page requests the curve before it knows that.
    page.goto(f"/jobs/{job.id}")
    expect(page.get_by_text("private to ann-of-private-jobs")).to_be_visible()
    expect(page.locator(".state", has_text="succeeded").first).to_be_visible()
    expect(page.get_by_role("link", name="Download")).to_have_count(0)
    expect(page.get_by_role("tab", name="Trials")).to_have_count(0)


def test_one_that_never_was_says_so(page):
    page.watch.expect("console: .*404")
    page.goto("/jobs/0000")
    expect(page.get_by_role("alert").first).to_contain_text("0000")


def test_one_that_failed_says_why(page, up, tmp_path):
    path = tmp_path / "notes.onnx"
    path.write_text("These are notes, and no model.")
    with up.client() as client:
        job = client.submit(path, name="no model").id
        with pytest.raises(InvalidModelError) as failure:
            client.wait(job)
    page.goto(f"/jobs/{job}")
    expect(page.get_by_role("alert").first).to_contain_text(failure.value.message)


def test_the_figures_come_from_one_measurement(page, finished, api):
    """The race's latency, ratio and baseline stand together, and each names the race."""
    report = api.get(f"/v1/jobs/{finished[1]}").json()["report"]
    ratio = report["untuned_ms"]["median"] / report["tuned_ms"]["median"]
    page.goto(f"/jobs/{finished[1]}")
    figures = page.get_by_label("The job's figures")
    latency = figures.locator(".figure", has=page.get_by_text("Latency", exact=True))
    expect(latency).to_contain_text("runs of the race")
    gain = figures.locator(".figure", has=page.get_by_text("Against untuned", exact=True))
    expect(gain).to_contain_text("in the race")
    expect(gain).to_contain_text(f"{float(f'{ratio:.3g}'):g}")


def test_kernels_tuned_in_the_model_have_a_first_trial_and_a_gain(page, finished, api):
    tasks = api.get(f"/v1/jobs/{finished[1]}/tasks", params={"limit": 500}).json()["tasks"]
    measured = [task for task in tasks if task["best_in_model_us"] is not None]
    assert measured
    assert all(task["first_in_model_us"] >= task["best_in_model_us"] for task in measured)
    page.goto(f"/jobs/{finished[1]}?search={measured[0]['task']}")
    row = page.get_by_role("table", name="Kernels").locator("tbody tr").first
    expect(row.get_by_title("measured in the model")).to_have_count(2)
    headers = page.get_by_role("table", name="Kernels").get_by_role("columnheader")
    names = [text.strip().lower() for text in headers.all_text_contents()]
    column = next(index for index, name in enumerate(names) if name.startswith("gain"))
    assert re.match(r"\d", row.locator("td, th").nth(column).inner_text())


def test_the_records_page_names_the_cost_model_in_use(page):
    page.goto("/records")
    expect(page.get_by_text("the one that ships with Farrier")).to_be_visible()


def test_two_are_compared(page, finished):
    page.goto(f"/jobs/{finished[0]}")
    page.get_by_role("link", name="Compare").click()
    settle(page)
    page.goto(f"/compare?jobs={finished[0]},{finished[1]}")
    settle(page)
    for trials in (8, 16):
        expect(page.get_by_text(f"tuned {trials}").first).to_be_visible()


def test_a_stream_that_is_cut_is_taken_up_again(visit, up, running):
    with Proxy(up.url) as proxy:
        page = visit(up, base_url=proxy.url)
        page.watch.expect("console: .*ERR_")
        page.goto(f"/jobs/{running}")
        wait_until(lambda: trials_drawn(page))
        proxy.cut()
        before = trials_drawn(page)
        wait_until(lambda: trials_drawn(page) > before)
        expect(page.get_by_text(CUT)).to_have_count(0)


def test_a_server_that_goes_away_and_comes_back(visit, own_up, deep_network):
    with own_up.client() as client:
        job = client.submit(deep_network, shapes=SHAPES, trials=100_000, name="goes on").id
    page = visit(own_up)
    page.watch.expect("console: .*ERR_")
    page.goto(f"/jobs/{job}")
    first = wait_until(lambda: trials_drawn(page))
    port = int(own_up.url.rpartition(":")[2])
    own_up.end(signal.SIGTERM)
    expect(page.get_by_text(CUT).first).to_be_visible(timeout=SOON_MS)
    assert trials_drawn(page) >= first  # The known points stay.
    own_up.start(port)
    expect(page.get_by_text(CUT)).to_have_count(0, timeout=SOON_MS)
    last = trials_drawn(page)
    wait_until(lambda: trials_drawn(page) > last)
