"""A model's files on their way to the server: asked for, sent in pieces, resumed."""

from __future__ import annotations

import hashlib
import os
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

SOON_MS = 60_000
LARGE = (9 << 20) + 12_345  # Bytes: several pieces, and not a multiple of one.
FILES = "input[type=file]"


@pytest.fixture
def with_data(tmp_path):
    """A model, and the two data files that it names."""
    seed = np.random.default_rng(int.from_bytes(os.urandom(4), "big"))
    weights = [
        numpy_helper.from_array(seed.random((8, 8), np.float32), name) for name in ("one", "two")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "one"], ["h"]),
        helper.make_node("MatMul", ["h", "two"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xy")
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=opset)
    path = tmp_path / "net.onnx"
    onnx.save(
        model,
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=False,
        size_threshold=1,
    )
    return path, tmp_path / "one", tmp_path / "two"


def model_of(page) -> str:
    """The id of the model that the page has sent."""
    page.wait_for_url(re.compile(r"model=[0-9a-f]{64}"), timeout=SOON_MS)
    return re.search(r"model=([0-9a-f]{64})", page.url)[1]


def digest(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_data_files_that_the_model_names_are_asked_for(page, api, with_data):
    message, first, second = with_data
    page.goto("/submit")
    page.set_input_files(FILES, [message, first])
    expect(page.get_by_text("The model names a data file that was not chosen.")).to_be_visible()
    expect(page.get_by_label("File of one")).to_have_value("one")
    expect(page.get_by_role("button", name="Upload", exact=True)).to_be_disabled()
    page.set_input_files(FILES, second)
    shown = api.get(f"/v1/models/{model_of(page)}").json()
    assert shown["message"] == digest(message)
    assert {place: file["sha256"] for place, file in shown["files"].items()} == {
        "one": digest(first),
        "two": digest(second),
    }
    expect(page.get_by_text("Farrier compiles this model.")).to_be_visible(timeout=SOON_MS)


def test_a_data_file_of_another_name_is_placed_by_the_reader(page, api, with_data):
    message, first, second = with_data
    renamed = second.rename(second.with_name("weights.bin"))
    page.goto("/submit")
    page.set_input_files(FILES, [message, first, renamed])
    page.get_by_label("File of two").select_option("weights.bin")
    page.get_by_role("button", name="Upload", exact=True).click()
    shown = api.get(f"/v1/models/{model_of(page)}").json()
    assert shown["files"]["two"]["sha256"] == digest(renamed)


def test_an_upload_that_was_cancelled_goes_on_in_another_page(page, api, tmp_path):
    path = tmp_path / "large.onnx"
    path.write_bytes(os.urandom(LARGE))
    offsets: list[int] = []

    def pieces(route):
        if route.request.method == "PATCH":
            offsets.append(int(route.request.headers["upload-offset"]))
            if len(offsets) == 3:
                return  # The request stays open until it is cancelled.
        route.continue_()

    page.route("**/v1/uploads/*", pieces)
    page.goto("/submit")
    page.set_input_files(FILES, path)
    expect(page.get_by_text("% sent")).to_be_visible(timeout=SOON_MS)
    while len(offsets) < 3:
        page.wait_for_timeout(50)
    page.get_by_role("button", name="Cancel the upload").click()
    expect(page.get_by_role("button", name="Go on with the upload")).to_be_visible()
    page.unroute("**/v1/uploads/*")
    page.reload()
    with page.expect_request(lambda request: request.method == "PATCH") as first:
        page.set_input_files(FILES, path)
    assert int(first.value.headers["upload-offset"]) >= offsets[2] > 0
    assert model_of(page) == digest(path)
    assert api.get(f"/v1/models/{digest(path)}").status_code == 200


def test_a_connection_that_breaks_is_outlived(page, api, tmp_path):
    path = tmp_path / "large.onnx"
    path.write_bytes(os.urandom(LARGE))
    seen: list[str] = []

    def break_some(route):
        if route.request.method == "PATCH":
            seen.append(route.request.url)
            if len(seen) in (2, 3):
                route.abort()
                return
        route.continue_()

    page.watch.expect("ERR_FAILED")
    page.route("**/v1/uploads/*", break_some)
    page.goto("/submit")
    page.set_input_files(FILES, path)
    assert model_of(page) == digest(path)
    assert len(seen) > 4
    page.set_input_files(FILES, path)
    expect(page.get_by_text("the server has it already")).to_be_visible(timeout=SOON_MS)


def test_a_file_that_the_server_does_not_take_says_so(page, tmp_path):
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    page.watch.expect("status of 422")
    page.goto("/submit")
    page.set_input_files(FILES, path)
    expect(page.get_by_role("alert").filter(has_text="the file is empty")).to_be_visible()
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
