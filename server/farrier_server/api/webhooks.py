"""Routes for webhooks, the URLs of users that receive events."""

from __future__ import annotations

import json
import time
from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from farrier.errors import ForbiddenError
from farrier_farm.access.users import Role
from farrier_farm.events.posting import LONGEST_URL, check_url
from farrier_farm.events.webhooks import DEVICE_EVENTS, EVENTS, JOB_EVENTS, PING, Webhook
from farrier_server.context import FarmDep
from farrier_server.gate import CallerDep
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])
WebhookId = Annotated[str, Path(description="The id of the webhook.", max_length=64)]


class WebhookRequest(BaseModel):
    """A request to send events to a URL."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(max_length=LONGEST_URL, description="The http or https URL, of a public host.")
    events: list[str] = Field(
        default_factory=lambda: list(JOB_EVENTS),
        min_length=1,
        max_length=len(EVENTS),
        description=f"The events to send. Events of the user's own jobs: {', '.join(JOB_EVENTS)}. "
        f"For operators only: {', '.join(DEVICE_EVENTS)}.",
    )


class WebhookView(BaseModel):
    """A URL that receives events."""

    id: str
    url: str
    events: list[str]
    created: float = Field(
        description="The time at which the webhook was registered, in Unix seconds."
    )
    delivered: int = Field(description="The number of events that the URL has accepted.")
    failed: int = Field(
        description="The number of events that were given up after several attempts."
    )
    last_error: str = Field(
        description="The reason why the latest attempt failed; empty after a success."
    )

    @classmethod
    def of(cls, hook: Webhook) -> WebhookView:
        return cls(
            id=hook.id,
            url=hook.url,
            events=list(hook.events),
            created=hook.created,
            delivered=hook.delivered,
            failed=hook.failed,
            last_error=hook.last_error,
        )


class NewWebhookView(WebhookView):
    """A new webhook, with the secret that signs its requests."""

    secret: str = Field(
        description="The secret with which requests are signed. It is shown only in this answer."
    )


class WebhookList(BaseModel):
    """The caller's webhooks."""

    webhooks: list[WebhookView] = Field(description="The webhooks, the oldest first.")


@router.get("", responses=documented(503))
def list_webhooks(farm: FarmDep, caller: CallerDep) -> WebhookList:
    """Return the webhooks of the caller."""
    return WebhookList(
        webhooks=[WebhookView.of(webhook) for webhook in farm.webhooks.list(caller.owner)]
    )


@router.post("", status_code=201, responses=documented(400, 403, 429, 503))
def add_webhook(
    body: WebhookRequest, farm: FarmDep, caller: CallerDep, response: Response
) -> NewWebhookView:
    """Register a URL that receives the selected events from now on, each as a signed POST request.
    A URL whose host is not public is refused, unless the server's settings allow it. 429 if the
    user already has 20 webhooks."""
    if set(body.events) & set(DEVICE_EVENTS) and not caller.role.includes(Role.OPERATOR):
        raise ForbiddenError(
            f"events of devices are for operators, but {caller.owner} has the role {caller.role}",
            hint=f"the events for all users are {', '.join(JOB_EVENTS)}",
        )
    check_url(body.url, private=farm.settings.webhook_private, user=caller.owner)
    hook = farm.webhooks.add(caller.owner, body.url, body.events)
    response.headers["Cache-Control"] = "no-store"
    return NewWebhookView(**WebhookView.of(hook).model_dump(), secret=hook.secret)


@router.delete("/{webhook_id}", status_code=204, responses=documented(404, 503))
def remove_webhook(webhook_id: WebhookId, farm: FarmDep) -> None:
    """Remove a webhook, and the events that wait to be sent to its URL."""
    farm.webhooks.remove(webhook_id)


@router.post("/{webhook_id}/ping", status_code=202, responses=documented(404, 503))
def ping_webhook(webhook_id: WebhookId, farm: FarmDep) -> WebhookView:
    """Send the event `ping` to a webhook. The webhook's counts of sent and failed events show later
    whether its URL was reached."""
    hook = farm.webhooks.get(webhook_id)
    farm.webhooks.make("", [(hook, json.dumps({"event": PING, "time": time.time()}))])
    return WebhookView.of(hook)
