"""The JSON form of a request for a single host library, which all versions of Farrier read.

It contains the library's digest as `library`, and for each candidate the names of its entry points
as `symbol` and `prepare`. Any other request, such as one with code of another kind or with a grid,
is written in the form of its dataclasses, which versions that know only this form reject.
"""

from __future__ import annotations

from typing import Any

HOST_CODE = "elf"
"""The kind of a library that the host loads."""


def to_library_form(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request, converted from the form of the dataclasses to the library
    form. If the library form cannot express the request, return `raw` unchanged."""
    candidates = [*raw["candidates"], *filter(None, [raw["reference"]])]
    if not (
        len(raw["code"]) == 1
        and raw["code"][0]["kind"] == HOST_CODE
        and all(map(_fits, candidates))
    ):
        return raw
    fields = {name: value for name, value in raw.items() if name != "code"}
    return fields | {
        "library": raw["code"][0]["blob"],
        "candidates": [_candidate_to_form(candidate) for candidate in raw["candidates"]],
        "reference": _candidate_to_form(raw["reference"]) if raw["reference"] else None,
    }


def from_library_form(raw: Any) -> Any:
    """Return the fields of a request, converted from the library form to the form of the
    dataclasses. Raises ValueError if a field of the library form is missing; the types of values
    are checked later, when the fields are decoded."""
    if not isinstance(raw, dict) or "library" not in raw:
        return raw
    if "code" in raw:
        raise ValueError("MeasureRequest has both code and a library")
    fields = {name: value for name, value in raw.items() if name != "library"}
    fields["code"] = [{"blob": raw["library"], "kind": HOST_CODE}]
    if isinstance(raw.get("candidates"), list):
        fields["candidates"] = [_candidate_from_form(each) for each in raw["candidates"]]
    if "reference" in raw:
        fields["reference"] = _candidate_from_form(raw["reference"])
    return fields


def _fits(candidate: dict[str, Any]) -> bool:
    """Return whether the library form can express a candidate. The candidate must have a single
    launch and at most one `prepare` launch, each with all arguments in order. Its `parts`, if any,
    must name their arguments. No launch may have a grid or block."""
    launches = [*candidate["launches"], *candidate["prepare"]]
    return (
        len(candidate["launches"]) == 1
        and len(candidate["prepare"]) <= 1
        and all(launch["args"] is None for launch in launches)
        and all(launch["args"] is not None for launch in candidate["parts"])
        and not any(launch["grid"] or launch["block"] for launch in launches + candidate["parts"])
    )


def _candidate_to_form(candidate: dict[str, Any]) -> dict[str, Any]:
    [launch] = candidate["launches"]
    prepare = candidate["prepare"]
    return {
        "symbol": launch["symbol"],
        "args": candidate["args"],
        "prepare": prepare[0]["symbol"] if prepare else None,
        "parts": [{"symbol": part["symbol"], "args": part["args"]} for part in candidate["parts"]],
    }


def _candidate_from_form(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    if "symbol" not in raw:
        raise ValueError("Candidate has no field 'symbol'")
    fields = {name: value for name, value in raw.items() if name not in ("symbol", "prepare")}
    prepare = raw.get("prepare")
    fields["launches"] = [{"symbol": raw["symbol"]}]
    fields["prepare"] = [] if prepare is None else [{"symbol": prepare}]
    parts = raw.get("parts")
    if isinstance(parts, list) and any("args" not in p for p in parts if isinstance(p, dict)):
        raise ValueError("Part has no field 'args'")
    return fields
