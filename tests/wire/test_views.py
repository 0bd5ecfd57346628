"""`tests/golden/wire/views/<name>.json`: what the REST API answers, and the SDK reads.

`pytest --update-golden` writes an answer with a value in each field.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from farrier.options import CompileOptions
from farrier.sdk import explorations as sdk_explorations
from farrier.sdk import models, users
from farrier.sdk.models import from_json
from farrier_server.api import (
    audit,
    curves,
    devices,
    enrolments,
    explorations,
    jobs,
    log,
    overview,
    trials,
    webhooks,
)
from farrier_server.api import users as user_views
from tests.wire.forms import OPTIONS

_GOLDEN = Path(__file__).parents[1] / "golden" / "wire" / "views"
_ANSWERS: dict[str, tuple[type[BaseModel], type[Any]]] = {
    "audit-entry": (audit.EntryView, models.AuditEntry),
    "choices": (trials.ChoicesView, models.Choices),
    "curve": (curves.CurveView, models.Curve),
    "device": (devices.DeviceView, models.Device),
    "device-invitation": (enrolments.InvitationView, models.DeviceInvitation),
    "device-standing": (enrolments.StandingView, models.DeviceStanding),
    "exploration": (explorations.ExplorationView, sdk_explorations.Exploration),
    "exploration-summary": (explorations.SummaryView, sdk_explorations.ExplorationSummary),
    "happening": (devices.DeviceEventView, models.DeviceEvent),
    "job": (jobs.JobView, models.Job),
    "log-line": (log.LogLine, models.LogLine),
    "overview": (overview.OverviewView, models.Overview),
    "task": (trials.TaskView, models.Task),
    "trial": (trials.TrialView, models.Trial),
    "user": (user_views.UserView, users.User),
    "webhook": (webhooks.NewWebhookView, models.Webhook),
}


@pytest.mark.parametrize("name", _ANSWERS)
def test_an_answer_is_written_and_read(name, update_golden):
    view, read_as = _ANSWERS[name]
    path = _GOLDEN / f"{name}.json"
    if update_golden:
        path.write_text(json.dumps(_example(view, "value"), indent=1) + "\n")
    raw = json.loads(path.read_text())
    assert view.model_validate(raw).model_dump(mode="json") == raw
    _assert_holds(from_json(read_as, raw), raw)


def test_a_request_carries_all_options(update_golden):
    path = _GOLDEN / "job-request.json"
    if update_golden:
        request = _example(jobs.JobRequest, "request")
        request |= {"model": "a" * 64, "options": OPTIONS.to_dict()}
        path.write_text(json.dumps(request, indent=1) + "\n")
    raw = json.loads(path.read_text())
    request = jobs.JobRequest.model_validate(raw)
    assert request.model_dump(mode="json") == raw
    assert request.options.compile_options() == OPTIONS
    assert jobs.JobRequest(model="a" * 64).options.compile_options() == CompileOptions()


def _assert_holds(value: Any, raw: Any) -> None:
    """Check that the value read from `raw` says the same, as far as it has fields."""
    if isinstance(raw, dict) and not isinstance(value, Mapping):
        for name in type(value).__dataclass_fields__:
            _assert_holds(getattr(value, name), raw[name])
    elif isinstance(raw, list):
        for item, item_raw in zip(value, raw, strict=True):
            _assert_holds(item, item_raw)
    else:
        assert value == raw


def _example(kind: Any, name: str) -> Any:
    """Return JSON of an annotation's kind; texts are the field's name."""
    inner = typing.get_args(kind)
    match typing.get_origin(kind):
        case types.UnionType | typing.Union:
            return _example(next(item for item in inner if item is not types.NoneType), name)
        case typing.Literal:
            return inner[-1]
        case typing.Annotated:
            return _example(inner[0], name)
        case origin if origin is list:
            return [_example(inner[0], name)]
        case origin if origin is dict:
            return {name: _example(inner[1], name)}
    if kind is Any:
        return name
    if issubclass(kind, BaseModel):
        fields = kind.model_fields.items()
        return {each: _example(field.annotation, each) for each, field in fields}
    if issubclass(kind, enum.Enum):
        return list(kind)[-1].value
    return {bool: True, int: 3, float: 1.5, str: name}[kind]
