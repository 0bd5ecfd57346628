"""The middleware that writes each request that changes something to the audit log, before the
request is answered.

An entry names the operation by its route: `jobs.cancel` for `POST /v1/jobs/{job_id}/cancel`. If the
route ends without a verb, the HTTP method supplies it (`jobs.add`, `jobs.remove`). The chunks of an
upload, the results of an exploration, and requests without a user are not logged, because their
number would displace all other entries.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farrier.errors import FarrierError
from farrier_farm.access.audit import OK, Entry
from farrier_farm.farm import Farm
from farrier_server.authentication import Caller
from farrier_server.gate import CALLER, LOGIN

_VERBS = {"POST": "add", "DELETE": "remove", "PUT": "change", "PATCH": "change"}
# A model's id is the hash of its content, which may belong to a private job.
_MODELS = "/v1/models"
_PIECES = {
    ("PATCH", "/v1/uploads/{upload_id}"),
    ("PUT", "/v1/explorations/{exploration_id}/area"),
    ("PUT", "/v1/explorations/{exploration_id}/result"),
}

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Audited:
    """The ASGI middleware that logs requests. It encloses the gate, and therefore logs refused
    requests as well."""

    app: ASGIApp
    farm: Farm

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _VERBS:
            await self.app(scope, receive, send)
            return
        begun: list[Message] = []  # The start of the answer is kept until its first piece arrives.

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun.append(message)
                return
            if begun:
                start = begun.pop()
                await self._note(scope, start["status"], message.get("body", b""))
                await send(start)
            await send(message)

        await self.app(scope, receive, answer)

    async def _note(self, scope: Scope, status: int, body: bytes) -> None:
        entry = _entry(scope, status, body)
        if entry is None:
            return
        try:
            # Redis, which stores the audit log, may be the reason of the failure.
            if status >= 500:
                _log.info("audit: %s", entry)
            else:
                await run_in_threadpool(self.farm.audit.note, entry)
        except FarrierError as error:
            _log.warning("an action in this log is missing in the audit log: %s", error.message)


def _entry(scope: Scope, status: int, body: bytes) -> Entry | None:
    """Return the audit entry of a request, or None if the request is not logged."""
    route = getattr(scope.get("route"), "path", "")
    operation = (scope["method"], route or scope["path"])
    answer = _json_object(body)
    caller: Caller | None = scope.get(CALLER)
    if caller is not None:
        user, role = caller.owner, str(caller.role)
    elif operation == LOGIN and status < 400:
        user, role = str(answer.get("owner", "")), str(answer.get("role", ""))
    else:
        return None
    if not route and caller is not None and status == 404:
        return None  # The path belongs to no route.
    if operation in _PIECES and status < 400:
        return None
    objects = [*scope.get("path_params", {}).values(), _id_in(answer) if status < 400 else ""]
    if operation[1].startswith(_MODELS):
        objects = [""]
    return Entry(
        user=user,
        role=role,
        action=action(*operation),
        object=str(objects[0]),
        address=str((scope.get("client") or [""])[0]),
        outcome=OK if status < 400 else str(answer.get("code", status)),
    )


def action(method: str, path: str) -> str:
    """Return the name of the operation of a request, such as `jobs.cancel`."""
    parts = path.strip("/").removeprefix("v1/").split("/")
    names = [part for part in parts if not part.startswith("{")]
    ends_with_verb = method == "POST" and len(names) > 1 and parts[-1] == names[-1]
    return ".".join(names if ends_with_verb else [*names, _VERBS[method]])


def _id_in(answer: Mapping[str, Any]) -> str:
    """Return the id of the job, model or upload, or the name of the user, that an answer contains.
    Return "" for any other answer."""
    user = answer.get("user")
    return str(answer.get("id") or (user.get("name", "") if isinstance(user, dict) else ""))


def _json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of an answer; an empty object if the body is anything
    else."""
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
