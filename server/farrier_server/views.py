"""Conversion of the dataclasses that clients of the REST API use into the schemas of its
answers."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import Field, create_model

from farrier.sdk.job import DESCRIPTION


def view_of(kind: type[Any], /, **narrower: Any) -> Any:
    """Return a pydantic model with the fields of the dataclass `kind` and their descriptions.
    `narrower` maps names of fields to types that replace those of the dataclass, such as the
    enumeration of the states that this version has. All fields are required in the model, because
    the defaults of the dataclass only serve clients of older servers."""
    hints = typing.get_type_hints(kind) | narrower
    fields: dict[str, Any] = {
        field.name: (
            _json_type(hints[field.name]),
            Field(description=field.metadata.get(DESCRIPTION)),
        )
        for field in dataclasses.fields(kind)
    }
    return create_model(kind.__name__, **fields)


def _json_type(annotation: Any) -> Any:
    """Return the JSON counterpart of a type annotation: lists for tuples, dictionaries for
    mappings."""
    inner = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case origin if origin is tuple:
            return list[_json_type(inner[0])]  # type: ignore[misc]
        case origin if origin is Mapping:
            return dict[inner[0], _json_type(inner[1])]  # type: ignore[valid-type, misc]
        case types.UnionType | typing.Union:
            return typing.Union[tuple(map(_json_type, inner))]  # noqa: UP007
        case _:
            return annotation
