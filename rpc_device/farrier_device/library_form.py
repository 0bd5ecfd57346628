"""The form in which versions of all ages exchange a request for one library of the host.

It has the library's digest as `library`, and of each candidate the names of its entry points as
`symbol` and `prepare`. A request that asks for anything else, such as code of another kind or a
grid, is exchanged as its dataclasses have it, and refused by versions that know this form alone.
"""

from __future__ import annotations

from typing import Any

HOST_CODE = "elf"
"""The kind of a library that the host loads."""


def to_library_form(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request in this form, or as they are if it does not fit."""
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
    """Return the fields of a request in the form of its dataclasses. Raises ValueError if a field
    of this form is missing; values of other types are left to the reader of the fields."""
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
    """Return whether a candidate is one entry point with all arguments, after at most one such
    that prepares them, in parts with arguments of their own."""
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
        raise ValueError("Candidate has no symbol")
    fields = {name: value for name, value in raw.items() if name not in ("symbol", "prepare")}
    prepare = raw.get("prepare")
    fields["launches"] = [{"symbol": raw["symbol"]}]
    fields["prepare"] = [] if prepare is None else [{"symbol": prepare}]
    parts = raw.get("parts")
    if isinstance(parts, list) and any("args" not in p for p in parts if isinstance(p, dict)):
        raise ValueError("Part has no args")
    return fields
