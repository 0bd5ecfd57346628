"""Tests of messages of another version: fields come and go, values keep their types."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from farrier_device import codec
from farrier_device.measurement import (
    Argument,
    Candidate,
    CandidateResult,
    CodeObject,
    DeviceFault,
    Launch,
    MeasureRequest,
    MeasureResult,
    Role,
    Status,
    TimingPolicy,
    request_from_json,
    result_from_json,
    to_json,
)

ARGUMENT = Argument(Role.OUTPUT, 508, "bf16", None, "e" * 64, cold=True, padding=7)
REQUEST = MeasureRequest(
    (CodeObject("a" * 64),),
    (
        Candidate(
            (Launch("k"),), (ARGUMENT,), (Launch("pack"),), (Launch("one", ((0, 64), (0, 128))),)
        ),
        Candidate((Launch("l"),), ()),
    ),
    TimingPolicy(threads=3, timeout_s=0.5),
    Candidate((Launch("reference"),), (Argument(Role.INPUT, 4, blob="b" * 64),)),
)
RESULT = MeasureResult(
    (
        CandidateResult(Status.OK, (100, 99), 1e-7, parts_ns=((40, 39), (60, 60))),
        CandidateResult(Status.CRASHED, message="SIGSEGV"),
    ),
    device="d",
    run_s=1.5,
)


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return all objects within a value, each before the objects in it."""
    if isinstance(value, dict):
        return [value, *(nested for item in value.values() for nested in _objects(item))]
    return (
        [nested for item in value for nested in _objects(item)] if isinstance(value, list) else []
    )


@pytest.mark.parametrize("whole", [False, True])
def test_what_was_written_is_read(whole):
    assert request_from_json(to_json(REQUEST), whole=whole) == REQUEST
    assert result_from_json(to_json(RESULT)) == RESULT
    fault = MeasureResult(fault=DeviceFault.NO_SPACE, message="full")
    assert result_from_json(to_json(fault)) == fault


@pytest.mark.parametrize("empty", [None, 0, 0.0, False, "", [], {}])
def test_fields_of_a_newer_peer_are_left_out(empty):
    for value, read in ((REQUEST, request_from_json), (RESULT, result_from_json)):
        raw = json.loads(to_json(value))
        for fields in _objects(raw):
            fields["newer"] = [1, {"deep": True}]
        assert read(json.dumps(raw)) == value
    for number in range(len(_objects(json.loads(to_json(REQUEST))))):
        raw = json.loads(to_json(REQUEST))
        fields = _objects(raw)[number]
        fields["newer"] = empty
        assert request_from_json(json.dumps(raw), whole=True) == REQUEST
        fields["newer"] = [1]
        with pytest.raises(ValueError, match="newer"):
            request_from_json(json.dumps(raw), whole=True)


def test_fields_that_an_older_peer_lacks_have_their_defaults():
    raw = json.loads(to_json(REQUEST))
    del raw["policy"], raw["reference"]
    for candidate in raw["candidates"]:
        del candidate["prepare"], candidate["parts"]
    bare = tuple(dataclasses.replace(c, prepare=(), parts=()) for c in REQUEST.candidates)
    assert request_from_json(json.dumps(raw)) == MeasureRequest(REQUEST.code, bare)
    assert result_from_json("{}") == MeasureResult()
    for needed, name in (("library", "code"), ("candidates", "candidates")):
        raw = json.loads(to_json(REQUEST))
        del raw[needed]
        with pytest.raises(ValueError, match=name):
            request_from_json(json.dumps(raw))


@pytest.mark.parametrize(
    "wrong",
    [
        {"results": [{"status": "dreaming"}]},
        {"results": [{"status": "ok", "samples_ns": [1.5]}]},
        {"results": [{"status": "ok", "samples_ns": [True]}]},
        {"results": [{"status": "ok", "samples_ns": [1, 2], "parts_ns": [[1]]}]},
        {"results": [{}]},
        {"results": {}},
        {"results": ["ok"]},
        {"fault": "moody"},
        {"run_s": "long"},
        {"device": None},
        [],
        None,
    ],
)
def test_values_of_other_types_are_malformed(wrong):
    with pytest.raises(ValueError, match=r".+"):
        result_from_json(json.dumps(wrong))


def test_any_json_is_read_or_malformed():
    """Nothing but ValueError comes out, whatever stands where."""
    draw = random.Random(4)
    values = [None, True, -1, 2.5, "text", [], [1, "x"], {}, {"symbol": 3}, [[1, 2]], float("nan")]
    read_anyway = 0
    for _ in range(2000):
        raw = json.loads(to_json(REQUEST))
        fields = draw.choice(_objects(raw))
        fields[draw.choice(list(fields))] = draw.choice(values)
        try:
            request_from_json(json.dumps(raw), whole=draw.random() < 0.5)
            read_anyway += 1
        except ValueError:
            pass
    assert 0 < read_anyway < 1000


def test_maps_and_integers_for_floats():
    @dataclasses.dataclass
    class Works:
        seconds: dict[str, float]
        about: Mapping[str, Any] | None = None

    # Names in annotations of a local class cannot be resolved; those of the module can.
    Works.__annotations__ = {"seconds": dict[str, float], "about": Mapping[str, Any] | None}
    assert codec.decode(Works, {"seconds": {"run": 2}}) == Works({"run": 2.0})
    assert codec.decode(Works, {"seconds": {}, "about": {"x": [1]}}) == Works({}, {"x": [1]})
    for wrong in ({"seconds": {"run": "2"}}, {"seconds": []}, {"seconds": {}, "about": 3}):
        with pytest.raises(ValueError, match=r"Works\."):
            codec.decode(Works, wrong)


def test_a_field_has_another_name_in_json():
    @dataclasses.dataclass(frozen=True)
    class Renamed:
        current: int = dataclasses.field(metadata={"name": "former"})

    assert codec.encode(Renamed(3)) == {"former": 3}
    assert codec.decode(Renamed, {"former": 3}) == Renamed(3)
    with pytest.raises(ValueError, match="it has no field 'former'"):
        codec.decode(Renamed, {})
