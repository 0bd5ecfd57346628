"""Numbers of requests: each has bounds, and none beyond them, however far, is a failure."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farrier_device.describe import describe
from tests.server.test_access import OPTIONS
from tests.server.test_gate import described
from tests.server.test_trials import record

# Around the ends of what a byte, a JSON number, Redis and the disk can count to, and far beyond.
ENDS = [0, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 63, 1 << 64, 10**30, 10**5000]
NUMBERS = (
    st.sampled_from(ENDS).flatmap(lambda end: st.integers(-2, 2).map(lambda off: end + off))
    | st.integers()
)
SIGNED = NUMBERS | NUMBERS.map(lambda number: -number)


def numbers_of(schema: Any) -> Iterator[dict[str, Any]]:
    """The schemas of numbers within one."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number") and "const" not in schema:
            yield schema
        for part in schema.values():
            yield from numbers_of(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from numbers_of(part)


def parameters(document: dict) -> list[tuple[str, str, dict]]:
    """Method, path and description of each parameter that is a number."""
    return [
        (method, path, parameter)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for parameter in operation.get("parameters", [])
        if any(numbers_of(parameter["schema"]))
    ]


def sent(document: dict) -> dict[str, Any]:
    """The schemas of what requests have in their bodies, by name."""
    schemas = document["components"]["schemas"]
    waiting = [
        operation.get("requestBody")
        for operations in document["paths"].values()
        for operation in operations.values()
    ]
    bounded: dict[str, Any] = {}
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            name = part.get("$ref", "").rpartition("/")[2]
            if name and name not in bounded:
                bounded[name] = schemas[name]
                waiting.append(schemas[name])
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return bounded


def test_every_number_of_a_request_has_bounds(service):
    document = described(service)
    given_ = {
        f"{m} {p} {parameter['name']}": parameter["schema"]
        for m, p, parameter in parameters(document)
    }
    assert len(given_) > 10
    assert len(sent(document)) > 5
    for name, schema in (given_ | sent(document)).items():
        for number in numbers_of(schema):
            above = {"maximum", "exclusiveMaximum"} & number.keys()
            below = {"minimum", "exclusiveMinimum"} & number.keys()
            assert above, (name, number)
            assert below, (name, number)
            assert abs(number[above.pop()]) <= 1 << 53, (name, number)


def test_no_number_is_a_failure(service, device_side):
    """H8: each integer of a path, a query or a header, of objects that there are."""
    http = service.http()
    device_side.connect("d", dataclasses.asdict(describe()))
    job = service.farm.jobs.submit(service.farm.blobs.put(b"model"), OPTIONS)
    service.farm.records.add(record("a", 1, 5), job.id)
    upload = service.farm.blobs.begin(5, "0" * 64, "default")
    ids = {"job_id": job.id, "upload_id": upload.id, "device_id": "d", "task": "a", "kernel": 0}
    asked = parameters(described(service))

    def check(parameter: tuple[str, str, dict], number: int) -> None:
        method, path, about = parameter
        name, where = about["name"], about["in"]
        text = f"{'-' * (number < 0)}{_digits(abs(number))}"
        names = ids | ({name: text} if where == "path" else {})
        answer = http.request(
            method.upper(),
            path.format_map(_Known(names)),
            params={name: text} if where == "query" else {},
            headers={name: text} if where == "header" else {},
        )
        assert answer.status_code < 500, (method, path, name, text[:30], answer.text)

    for parameter, end in itertools.product(asked, ENDS):
        check(parameter, end)
    settled = settings(
        max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    settled(given(parameter=st.sampled_from(asked), number=SIGNED)(check))()


class _Known(dict):
    def __missing__(self, name: str) -> str:
        return "0" * 64


def _digits(number: int) -> str:
    """Its decimal digits; Python itself writes no more than some 4,300."""
    high, low = divmod(number, 10**4000)
    return f"{high}{low:04000d}" if high else str(low)
