"""`tests/golden/wire/<type>.json`: every type that crosses a process or lies in a file, as text.

`<type>.txt` says what its reader makes of objects that another version wrote: which fields may be
missing, and what becomes of a field that it does not know. `pytest --update-golden` writes both.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farrier.errors import FarrierError
from tests.wire.forms import FORMS, Form

_GOLDEN = Path(__file__).parents[1] / "golden" / "wire"
# Values of every JSON type, none of which is right for all fields.
_OTHERS = (None, True, -1, 2.5, "text", "\ud800", [], [1, "x"], {}, {"symbol": 3}, [[1, 2]])


def compared(path: Path, text: str, update: bool) -> None:
    """Hold a golden to the text, or write the text."""
    if update:
        path.write_text(text)
    else:
        assert path.read_text() == text


@pytest.mark.parametrize("name", FORMS)
def test_values_are_written_and_read(name, update_golden):
    form = FORMS[name]
    compared(_GOLDEN / f"{name}.json", "".join(f"{line}\n" for line in _texts(form)), update_golden)
    assert tuple(map(form.read, _texts(form))) == form.values


@pytest.mark.parametrize("name", FORMS)
def test_objects_of_other_versions(name, update_golden):
    form = FORMS[name]
    lines: dict[str, None] = {}
    for text in _texts(form):
        for path, _ in _objects(json.loads(text)):
            lines |= dict.fromkeys(_leniency(form, text, path))
    compared(_GOLDEN / f"{name}.txt", "".join(f"{line}\n" for line in lines), update_golden)


@pytest.mark.parametrize("name", FORMS)
def test_values_of_other_types_are_read_or_refused(name):
    """Nothing but the errors that the reader documents comes out."""
    form = FORMS[name]
    for text in _texts(form):
        for path, fields in _objects(json.loads(text)):
            for field in fields:
                for other in _OTHERS:
                    raw = copy.deepcopy(json.loads(text))
                    _at(raw, path)[field] = other
                    _reads(form, raw)


def test_each_field_is_seen():
    missing = {
        f"{type(value).__name__}.{field.name}"
        for value in _dataclasses(tuple(form.values for form in FORMS.values()))
        for field in dataclasses.fields(value)
    }
    for value in _dataclasses(tuple(form.values for form in FORMS.values())):
        for field in dataclasses.fields(value):
            if getattr(value, field.name) != _default(field):
                missing.discard(f"{type(value).__name__}.{field.name}")
    assert missing == {"Manifest.format"}


def test_every_golden_is_of_a_form():
    assert {path.stem for path in _GOLDEN.glob("*.txt")} == set(FORMS)


def _texts(form: Form) -> list[str]:
    return [form.write(value) for value in form.values]


def _objects(raw: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Return each object within a JSON value, with its path."""
    if isinstance(raw, dict):
        yield path, raw
        for name, value in raw.items():
            yield from _objects(value, (*path, name))
    if isinstance(raw, list):
        for position, value in enumerate(raw):
            yield from _objects(value, (*path, position))


def _at(raw: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        raw = raw[step]
    return raw


def _leniency(form: Form, text: str, path: tuple[Any, ...]) -> Iterator[str]:
    """Say which fields of the object at `path` may be missing, and what of unknown ones."""
    where = ".".join("*" if isinstance(step, int) else step for step in path) or "(top)"
    for field in _at(json.loads(text), path):
        raw = json.loads(text)
        del _at(raw, path)[field]
        yield f"{where}: {field} {'may be missing' if _reads(form, raw) else 'is needed'}"
    readable = []
    for value in ("", "newer"):
        raw = json.loads(text)
        _at(raw, path)["unknown"] = value
        readable.append(_reads(form, raw))
    empty, full = readable
    fate = "taken" if full else "refused unless it is empty" if empty else "refused"
    yield f"{where}: an unknown field is {fate}"


def _reads(form: Form, raw: Any) -> bool:
    try:
        form.read(json.dumps(raw))
    except (ValueError, FarrierError):
        return False
    return True


def _dataclasses(value: Any) -> Iterator[Any]:
    """Return each dataclass within a value."""
    if dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from _dataclasses(getattr(value, field.name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from _dataclasses(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _dataclasses(item)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
