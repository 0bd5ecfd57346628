"""The sender of webhooks: one thread turns the farm's events into deliveries, and others send the
deliveries.

Each API server of a farm runs a notifier; each delivery is created once, and sent by one server at
a time (`webhooks.py`). No request waits for it. A slow webhook delays only its own user, who may
have at most `OF_A_USER` deliveries in progress.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from farrier.errors import FarrierError, NotFoundError
from farrier_device.closing import Closing
from farrier_farm.access.users import Role, Users
from farrier_farm.events.farm_events import NEWS
from farrier_farm.events.posting import PostError, post, signature
from farrier_farm.events.webhooks import DEVICE_EVENTS, EVENTS, Delivery, Webhook
from farrier_farm.farm import Farm
from farrier_farm.jobs.jobs import Job
from farrier_farm.jobs.kinds import JobKind

AT_ONCE = 8  # The most tries in progress; each takes at most `posting.TIMEOUT_S`.
OF_A_USER = 2
_LOOK_S = 0.5
_BUSY_S = 2.0  # The time after which a delivery of a busy user is looked at again.
_EVENTS_AT_ONCE = 200
_FIRST_PAUSE_S, _GROWTH = 10.0, 3.0  # Eight tries take three hours.
_LONGEST = 500  # The most characters of a text from users or devices.
# Other events have the same name as in the device's history.
_OF_DEVICE = {"lost": "device.offline"}

_log = logging.getLogger(__name__)


class Notifier(Closing):
    """The threads that create and send deliveries, until the notifier is closed. Deliveries that
    are in progress at that time are sent again later."""

    def __init__(self, farm: Farm) -> None:
        self._farm = farm
        self._users = Users(farm.settings.home)
        self._over = threading.Event()
        self._under_way: collections.Counter[str] = collections.Counter()  # tries, by user
        self._counting = threading.Lock()
        self._threads = [
            threading.Thread(target=self._repeat, args=[work], name=name, daemon=True)
            for name, work in (("events", self.make), ("webhooks", self._begin))
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Start no more deliveries, and wait for a short time until the threads end."""
        self._over.set()
        for thread in self._threads:
            thread.join(1.0)  # Redis may be away, and is not waited for

    def _repeat(self, work: Any) -> None:
        while not self._over.wait(_LOOK_S):
            try:
                work()
            except FarrierError as error:  # Redis is away, or the disk with the users
                _log.debug("deliveries to webhooks are delayed: %s", error.message)
            except Exception:
                _log.exception("webhooks")

    # Events → deliveries

    def make(self) -> None:
        """Create the deliveries for events since the last call."""
        hooks = self._farm.webhooks
        after = hooks.cursor()
        if after is None:  # from now on
            newest = self._farm.client.command("XREVRANGE", NEWS, "+", "-", "COUNT", 1)
            hooks.make(newest[0][0] if newest else "0-1", ())
            return
        entries = self._farm.client.command(
            "XRANGE", NEWS, f"({after}", "+", "COUNT", _EVENTS_AT_ONCE
        )
        if not entries:
            return
        hooks_now = hooks.list()
        if not hooks_now:
            hooks.make(entries[-1][0], ())
            return
        for event_id, fields in entries:
            receivers = self._recipients(json.loads(fields["data"]), hooks_now)
            body = {"time": int(event_id.partition("-")[0]) / 1000}
            each = [
                (hook, json.dumps({"delivery": f"{event_id}-{hook.id}", **body, **event}))
                for hook, event in receivers
            ]
            if dropped := hooks.make(event_id, each):
                _log.warning(
                    "%d deliveries to webhooks were dropped, since the queue is full", dropped
                )

    def _recipients(
        self, event: Mapping[str, Any], hooks: list[Webhook]
    ) -> Iterator[tuple[Webhook, dict[str, Any]]]:
        """Yield each webhook in `hooks` that receives the event, with the JSON body of its
        request."""
        if event["kind"] == "device":
            name = _OF_DEVICE.get(event["what"], f"device.{event['what']}")
            reason = str(event.get("reason") or "")[:_LONGEST]
            body: dict[str, Any] = {
                "event": name,
                "device": str(event["device"])[:_LONGEST],
                "reason": reason,
            }
            yield from ((h, body) for h in hooks if name in h.events and self._may_see(h, name))
        elif event["kind"] == "job":
            name = f"job.{event['state']}"
            wanted = [hook for hook in hooks if name in hook.events and self._may_see(hook, name)]
            job = self._job(event["job"]) if name in EVENTS and wanted else None
            if job is not None:
                body = {"event": name, "job": _of_job(job)}
                yield from ((hook, body) for hook in wanted if hook.owner == job.owner)

    def _may_see(self, hook: Webhook, event: str) -> bool:
        """Return whether the owner of the webhook is still a user, and may see this event."""
        user = self._users.named(hook.owner)
        if user is None or user.has_expired:
            return False
        return event not in DEVICE_EVENTS or user.role.includes(Role.OPERATOR)

    def _job(self, job_id: str) -> Job | None:
        """Return the job of an event; None for an inspection, a listing or a deleted job."""
        try:
            job = self._farm.jobs.get(job_id)
        except NotFoundError:
            return None
        return job if job.kind is JobKind.COMPILE else None

    # Deliveries → requests

    def _begin(self) -> None:
        """Start to send due deliveries, up to the limits on deliveries in progress."""
        with self._counting:
            under_way = +self._under_way
        room = AT_ONCE - under_way.total()
        if room <= 0:
            return
        for delivery in self._farm.webhooks.take(
            room, of_user=OF_A_USER, under_way=under_way, busy_s=_BUSY_S
        ):
            try:
                hook = self._farm.webhooks.get(delivery.hook)
            except NotFoundError:
                continue
            with self._counting:
                self._under_way[hook.owner] += 1
            threading.Thread(target=self._try, args=[hook, delivery], daemon=True).start()

    def _try(self, hook: Webhook, delivery: Delivery) -> None:
        settings = self._farm.settings
        error, again_s = "", None
        try:
            try:
                if not self._may_see(hook, str(json.loads(delivery.body)["event"])):
                    delivery = dataclasses.replace(delivery, attempts=settings.webhook_attempts)
                    raise PostError("its user has no token any more, or has another role")
                self._post(hook, delivery)
            except PostError as problem:
                error = str(problem)
                if delivery.attempts + 1 < settings.webhook_attempts:
                    again_s = _FIRST_PAUSE_S * _GROWTH**delivery.attempts
            self._farm.webhooks.settle(delivery, error, again_s)
        except FarrierError as problem:  # The delivery is due again after `TAKEN_S`.
            _log.debug("deliveries to webhooks are delayed: %s", problem.message)
        except Exception:
            _log.exception("a delivery to webhook %s", hook.id)
        finally:
            with self._counting:
                self._under_way[hook.owner] -= 1

    def _post(self, hook: Webhook, delivery: Delivery) -> None:
        body, now = delivery.body.encode(), int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Farrier",
            "Farrier-Delivery": delivery.id,
            "Farrier-Signature": signature(hook.secret, body, now),
        }
        private = self._farm.settings.webhook_private
        post(hook.url, body, headers, private=private, user=hook.owner)


def _of_job(job: Job) -> dict[str, Any]:
    error = None
    if job.error is not None:
        error = {name: str(text)[:_LONGEST] for name, text in job.error.items()}
    return {"id": job.id, "name": job.name[:_LONGEST], "state": job.state, "error": error}
