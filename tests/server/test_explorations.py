"""Explorations through the server: results are shown to the users who may read them, and an error
names the malformed part of a request."""

from __future__ import annotations

from xml.etree import ElementTree

import httpx
import pytest

from farrier.errors import ForbiddenError, NotFoundError, UsageError
from farrier.hardware.figures import Figures
from farrier.hardware.kept import Kept
from farrier.hardware.published import Publication, publish
from farrier.options import CompileOptions
from farrier.sdk.client import Client
from farrier.targets.dae.description import read, to_json
from farrier.targets.dae.machines import SMALL, VTA
from farrier_farm.access.users import Role, Users
from farrier_server.api import explorations

SHAPES = [to_json(SMALL), to_json(VTA)]
FIGURES = {
    "cycles": 1000,
    "device_ms": 0.01,
    "latency_ms": None,
    "share": 1.0,
    "kernels": 2,
    "reason": "",
}
CELLS = {"lut": 1200, "ff": 800, "dsp": 64, "ram": 12}
MARKUP = "<img src=nowhere>&\"'"


@pytest.fixture
def client(service):
    with Client(service.url, service.token) as client:
        yield client


def client_of(service, name, role=Role.USER, **options):
    token = Users(service.settings.home).add(name, role, **options)
    return service.closing.enter_context(Client(service.url, token))


def body(**changes):
    return {"name": "e", "shapes": SHAPES, "models": ["m.onnx"], **changes}


def test_an_exploration_grows_result_by_result(client):
    created = client.explorations.create("sizes", SHAPES, ["a.onnx", "b.onnx"])
    pairs = [(each.model, each.shape) for each in created.results]
    assert pairs == [
        *(("a.onnx", "small"), ("a.onnx", "vta")),
        *(("b.onnx", "small"), ("b.onnx", "vta")),
    ]
    assert not any(each.cycles or each.job or each.on_front for each in created.results)
    assert (created.owner, created.private, created.may_change) == ("default", False, True)
    small, vta = created.shapes
    assert small.description == SHAPES[0]
    assert vta.area["scratchpad_bytes"] == 416 << 10

    store = client.explorations
    store.set_result(created.id, "a.onnx", "small", figures=FIGURES)
    store.set_result(created.id, "a.onnx", "vta", figures={**FIGURES, "cycles": 2000})
    store.set_area(created.id, "small", CELLS, mhz=[60.0, 50.0, 70.0], part="ECP5-45")
    shown = store.get(created.id)
    first, second, *others = shown.results
    assert (first.cycles, first.on_front, first.placed_ms) == (1000, True, pytest.approx(1 / 60))
    assert (second.cycles, second.on_front, second.placed_ms) == (2000, False, None)
    assert not any(each.cycles for each in others)
    assert shown.shapes[0].area == {**small.area, **CELLS}
    assert (shown.shapes[0].mhz, shown.shapes[0].part) == ((60.0, 50.0, 70.0), "ECP5-45")
    assert shown.changed >= created.changed
    (summary,) = store.list()
    assert (summary.name, summary.shape_count, summary.model_count) == ("sizes", 2, 2)
    assert summary.result_count == 2

    store.remove(created.id)
    assert list(store.list()) == []
    with pytest.raises(NotFoundError, match=created.id):
        store.set_result(created.id, "a.onnx", "small", figures=FIGURES)


def test_states_are_those_of_the_jobs(service, client):
    created = client.explorations.create("e", SHAPES, ["m.onnx"])
    options = CompileOptions(target="rpi4", verify=False)
    model = service.farm.blobs.put(b"model")
    job = service.farm.jobs.submit(model, options)
    theirs = service.farm.jobs.submit(model, options, owner="ann", private=True)
    client.explorations.set_result(created.id, "m.onnx", "small", job=job.id)
    client.explorations.set_result(created.id, "m.onnx", "vta", job=theirs.id)
    client.explorations.set_result(created.id, "m.onnx", "small", figures=FIGURES)

    def shown(viewer):
        results = viewer.explorations.get(created.id).results
        return [(each.job, each.state) for each in results]

    # The user `default` is an admin, who sees the states of all jobs.
    assert shown(client) == [(job.id, "queued"), (theirs.id, "queued")]
    service.farm.cancel(job.id)
    assert shown(client)[0] == (job.id, "cancelled")
    service.farm.delete(job.id)
    assert shown(client)[0] == (None, None)
    ben = client_of(service, "ben")
    own = ben.explorations.create("e", SHAPES, ["m.onnx"])
    ben.explorations.set_result(own.id, "m.onnx", "small", job=theirs.id)
    assert ben.explorations.get(own.id).results[0].job is None


def test_others_read_what_they_may(service):
    ann, mate = (client_of(service, name, group="lab") for name in ("ann", "mate"))
    ben, admin = client_of(service, "ben"), client_of(service, "adm", Role.ADMIN)
    public = ann.explorations.create("public", SHAPES, ["m"]).id
    private = ann.explorations.create("private", SHAPES, ["m"], private=True).id

    def names(client):
        return [each.name for each in client.explorations.list()]

    assert [names(each) for each in (ann, mate, ben, admin)] == [
        ["private", "public"],
        ["public"],
        [],
        ["public"],
    ]
    assert not mate.explorations.get(public).may_change
    with pytest.raises(ForbiddenError, match="belongs to ann"):
        mate.explorations.set_result(public, "m", "small", figures=FIGURES)
    with pytest.raises(ForbiddenError, match="only its owner and admins"):
        mate.explorations.remove(public)
    for client, exploration in ((mate, private), (ben, public), (ben, private), (admin, private)):
        with pytest.raises(NotFoundError):
            client.explorations.get(exploration)
    for exploration in (public, private):
        with pytest.raises(NotFoundError):
            ben.explorations.remove(exploration)
        admin.explorations.remove(exploration)
    assert names(ann) == []


def test_a_page_has_a_next_one(service, client):
    ids = [client.explorations.create(f"e{n}", SHAPES, ["m"]).id for n in range(5)]
    answers, after = [], ""
    while after or not answers:
        page = service.http().get("/v1/explorations", params={"limit": 2, "after": after}).json()
        answers.append([each["id"] for each in page["explorations"]])
        after = page["next"]
    assert [len(each) for each in answers] == [2, 2, 1]
    assert sorted(ids) == sorted(each for page in answers for each in page)


def test_files_are_the_chart_and_the_descriptions(service, client):
    shape = {**to_json(SMALL), "name": MARKUP}
    created = client.explorations.create(MARKUP, [shape, SHAPES[1]], [MARKUP])
    http, path = service.http(), f"/v1/explorations/{created.id}"
    empty = http.get(f"{path}/chart")
    assert (empty.status_code, empty.json()["code"]) == (409, "conflict")
    client.explorations.set_result(created.id, MARKUP, MARKUP, figures=FIGURES)
    client.explorations.set_result(created.id, MARKUP, "vta", figures={**FIGURES, "kernels": 0})
    client.explorations.set_area(created.id, "vta", CELLS)
    answer = http.get(f"{path}/chart")
    assert answer.headers["content-type"] == "image/svg+xml"
    assert 'filename="pareto.svg"' in answer.headers["content-disposition"]
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    drawn = ElementTree.fromstring(answer.text)
    assert not drawn.findall(".//{*}img")
    assert any(MARKUP in (each.text or "") for each in drawn.iter())
    answer = http.get(f"{path}/description", params={"shape": MARKUP})
    assert answer.headers["content-type"].startswith("application/toml")
    assert 'filename="_img_src_nowhere____.toml"' in answer.headers["content-disposition"]
    assert to_json(read(answer.text)) == shape
    assert http.get(f"{path}/description", params={"shape": "other"}).status_code == 404


SHAPE = SHAPES[0]
MALFORMED = {
    "no name": (body(name=""), "body.name"),
    "a name of two lines": (body(name="a\nb"), "body.name"),
    "a long name": (body(name="x" * 201), "body.name"),
    "no shapes": (body(shapes=[]), "body.shapes"),
    "no models": (body(models=[]), "body.models"),
    "too many shapes": (body(shapes=[SHAPE] * 257), "body.shapes"),
    "an unknown field": (body(colour="red"), "body.colour"),
    "a shape that lacks a table": (body(shapes=[{"name": "a"}]), "cannot read the description"),
    "a shape that cannot work": (
        body(shapes=[{**SHAPE, "port": {**SHAPE["port"], "bytes": 3}}]),
        "the accelerator small: port.bytes of 3",
    ),
    "a shape without a name": (body(shapes=[{**SHAPE, "name": ""}]), "cannot be the name"),
    "a shape of two lines": (body(shapes=[{**SHAPE, "name": "a\nb"}]), "cannot be the name"),
    "two shapes of one name": (body(shapes=[SHAPE, SHAPE]), "two shapes have the name 'small'"),
    "two models of one name": (body(models=["m", "m"]), "two models have the name 'm'"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_exploration_is_refused(service, case):
    sent, words = MALFORMED[case]
    answer = service.http().post("/v1/explorations", json=sent)
    assert (answer.status_code, answer.json()["code"]) == (400, "usage"), answer.text
    assert words in answer.json()["detail"]
    assert service.http().get("/v1/explorations").json()["explorations"] == []


def test_too_many_pairs_are_refused(service, monkeypatch):
    monkeypatch.setattr(explorations, "MOST_CANDIDATES", 3)
    answer = service.http().post("/v1/explorations", json=body(models=["a", "b"]))
    assert answer.status_code == 400
    assert "2 shapes and 2 models are 4 pairs" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("part", "sent", "words"),
    [
        ("area", {"shape": "small", "cells": {**CELLS, "lut": -1}}, "body.cells.lut"),
        ("area", {"shape": "small", "cells": {"lut": 1}}, "body.cells.ff"),
        ("area", {"shape": "small", "cells": CELLS, "mhz": [0]}, "body.mhz.0"),
        ("area", {"shape": "other", "cells": CELLS}, "has no shape 'other'"),
        ("result", {"shape": "other", "model": "m.onnx"}, "has no shape 'other'"),
        ("result", {"shape": "small", "model": "other"}, "has no model 'other'"),
        ("result", {"shape": "small", "model": "m.onnx", "job": "../x"}, "body.job"),
        (
            "result",
            {"shape": "small", "model": "m.onnx", "figures": {**FIGURES, "share": 2}},
            "body.figures.share",
        ),
        (
            "result",
            {"shape": "small", "model": "m.onnx", "figures": {**FIGURES, "cycles": 1 << 60}},
            "body.figures.cycles",
        ),
    ],
)
def test_a_malformed_result_is_refused(service, client, part, sent, words):
    created = client.explorations.create("e", SHAPES, ["m.onnx"])
    answer = service.http().put(f"/v1/explorations/{created.id}/{part}", json=sent)
    assert (answer.status_code, answer.json()["code"]) == (400, "usage"), answer.text
    assert words in answer.json()["detail"]


def test_results_do_not_fill_the_audit_log(service, client):
    created = client.explorations.create("e", SHAPES, ["m.onnx"])
    client.explorations.set_result(created.id, "m.onnx", "small", figures=FIGURES)
    with pytest.raises(UsageError):
        client.explorations.set_result(created.id, "m.onnx", "other", figures=FIGURES)
    client.explorations.remove(created.id)
    actions = [(each.action, each.outcome) for each in client.audit()]
    assert actions == [
        ("explorations.remove", "ok"),
        ("explorations.result.change", "usage"),
        ("explorations.add", "ok"),
    ]


def test_a_later_run_continues_the_same_exploration(client, tmp_path):
    def published(*keys, private=False):
        kept = Kept(tmp_path / "results.jsonl")  # It is read anew, as by another process.
        return publish(Publication(client, "sizes", private), [SMALL, VTA], ["m"], keys, kept)

    first = published("a", "b")
    (begun,) = client.explorations.list()
    assert first.url == f"{client.url}/explorations/{begun.id}"
    first.add_area("small", {**CELLS, "mhz": [60.0, 70.0], "part": "ECP5-45"})
    first.add_area("vta", CELLS)
    first.add_job("m", "small", "0" * 20)
    first.add_figures("m", "small", Figures(**FIGURES))
    shown = client.explorations.get(begun.id)
    assert [(each.mhz, each.part) for each in shown.shapes] == [
        ((60.0, 70.0), "ECP5-45"),
        ((), None),
    ]
    assert shown.results[0].cycles == FIGURES["cycles"]
    assert published("a", "b").url == first.url
    assert len({first.url, published("a", "c").url, published("a", "b", private=True).url}) == 3
    client.explorations.remove(begun.id)
    with pytest.raises(NotFoundError, match="it may have been deleted"):
        first.add_figures("m", "small", Figures(**FIGURES))
    assert published("a", "b").url != first.url


def test_a_stranger_needs_a_token(service):
    assert httpx.get(f"{service.url}/v1/explorations").status_code == 401
