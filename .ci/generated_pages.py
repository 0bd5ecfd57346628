"""The pages of the site that follow from the code: its entrance, the Python API, the REST API.

A hook of mkdocs (`.ci/mkdocs.yml`): the entrance is the README with its links turned, the Python
API is what `farrier.__all__` names, and the REST API is the server's own OpenAPI document.
"""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
_VERBS = ("get", "head", "post", "put", "patch", "delete")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of docs/."""
    undocumented = sorted(undocumented_names())
    if undocumented:
        raise PluginError(f"public names without a docstring: {', '.join(undocumented)}")
    pages = {
        "index.md": (ROOT / "README.md").read_text().replace("](docs/", "]("),
        "reference/api.md": api_page(),
        "reference/rest.md": rest_page(openapi_document()),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def undocumented_names() -> Iterator[str]:
    """Yield the names of `farrier.__all__`, and of their public members, that lack a docstring."""
    import farrier

    for name in farrier.__all__:
        public = getattr(farrier, name)
        if not inspect.getdoc(public):
            yield name
        if inspect.isclass(public):
            for member, value in vars(public).items():
                documented = callable(value) or isinstance(value, property | classmethod)
                if documented and not member.startswith("_") and not inspect.getdoc(value):
                    yield f"{name}.{member}"


def api_page() -> str:
    import farrier

    modules = [f"::: farrier.{name}\n" for name in farrier.__all__]
    return "\n".join(["# Python API\n", inspect.getdoc(farrier) or "", "", *modules])


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of a server that stands on an empty farm."""
    from farrier_farm.farm import Farm
    from farrier_farm.redis import embedded
    from farrier_farm.settings import Settings
    from farrier_server import app

    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=Path(home))
        valkey = embedded.start(settings)
        try:
            return app.openapi_document(app.create_app(Farm.open(settings), "unused"))
        finally:
            valkey.stop()


def rest_page(document: dict[str, Any]) -> str:
    lines = ["# REST API", "", document["info"]["description"].strip(), ""]
    lines += ["[protocol.md](protocol.md) describes the order of requests.", ""]
    for path, operations in document["paths"].items():
        for verb in (verb for verb in _VERBS if verb in operations):
            lines += _operation(verb.upper(), path, operations[verb])
    return "\n".join([*lines, "## Schemas", "", *_schemas(document["components"]["schemas"])])


def _operation(verb: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield from (f"## `{verb} {path}`", "", operation.get("description", ""), "")
    parameters = operation.get("parameters", [])
    if parameters:
        yield from ("| parameter | in | type | |", "|---|---|---|---|")
    for parameter in parameters:
        text = parameter.get("description", "").replace("\n", " ")
        kind = _type(parameter.get("schema", {}))
        yield f"| `{parameter['name']}` | {parameter['in']} | {kind} | {text} |"
    yield ""
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield from (f"Body: `{media}`, {_type(content.get('schema', {}))}", "")
    yield from ("| status | answer | |", "|---|---|---|")
    for status, answer in operation["responses"].items():
        schemas = [
            _type(content.get("schema", {})) for content in answer.get("content", {}).values()
        ]
        yield f"| {status} | {', '.join(schemas)} | {answer.get('description', '')} |"
    yield ""


def _schemas(schemas: dict[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        yield from (f"### {name}", "", schema.get("description", ""), "")
        if schema.get("properties"):
            yield from ("| field | type | |", "|---|---|---|")
        for field, described in schema.get("properties", {}).items():
            text = described.get("description", "").replace("\n", " ")
            yield f"| `{field}` | {_type(described)} | {text} |"
        yield ""


def _type(schema: dict[str, Any]) -> str:
    """Return a schema as the cell of a table; a reference links to its heading on the page."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for joined in ("anyOf", "oneOf", "allOf"):
        if joined in schema:
            return " or ".join(_type(choice) for choice in schema[joined])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    return str(schema.get("type", "any"))
