"""Check that a farm works, as far as its users can observe; each check yields one finding.

The server's own package adds the checks that need its Redis and its disk through the entry points
`farrier.checks`: functions like `of_service`, which yield findings, or none if they do not run on a
server.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterator
from typing import TypeAlias

import farrier
from farrier.errors import FarrierError
from farrier.sdk.client import Client
from farrier.sdk.models import Device

CHECKS = "farrier.checks"
_WALLS = ("seccomp", "landlock")


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. If it is not `ok`, `hint` is a way to solve the problem; else it may
    suggest an improvement."""

    what: str
    ok: bool
    detail: str
    hint: str = ""

    @classmethod
    def failed(cls, what: str, error: FarrierError) -> Finding:
        return cls(what, False, error.message, error.hint)


Findings: TypeAlias = Iterator[Finding]


def of_service(client: Client, names: Collection[str]) -> Findings:
    """Check the connection to the API, the health of its Redis and disk, the token, and the devices
    `names`, or all devices. Checks that cannot succeed after an earlier failure are skipped."""
    begin = time.perf_counter()
    try:
        version = client.version()
    except FarrierError as error:
        yield Finding.failed("api", error)
        return
    took = _ms(time.perf_counter() - begin)
    yield Finding("api", True, f"{client.url} answers after {took}, version {version}")
    if version != farrier.__version__:
        yield Finding(
            "version",
            True,
            f"the server has version {version}, and this machine has version {farrier.__version__}",
            "the two work together, but without the features that only one of them has",
        )
    try:
        client.check_ready()
        yield Finding("ready", True, "the server reaches Redis and its disk")
    except FarrierError as error:
        yield Finding.failed("ready", error)
    try:
        devices = client.devices()
    except FarrierError as error:
        yield Finding.failed("token", error)
        return
    yield Finding("token", True, "the server accepts it")
    if not devices:
        hint = "start `farrier device` on a machine to measure on"
        yield Finding("devices", False, "no device has ever connected", hint)
    yield from (_of_device(device) for device in devices if not names or device.id in names)
    for name in sorted(set(names) - {device.id for device in devices}):
        hint = "`farrier devices` lists all known devices"
        yield Finding(f"device {name}", False, "it has never connected", hint)


def _of_device(device: Device) -> Finding:
    what, age = f"device {device.id}", max(0.0, time.time() - device.seen)
    if device.state == "offline":
        return Finding(
            what,
            False,
            f"offline, last seen {age:.0f} s ago",
            "see the log of its agent, which names the broker and the cause of the failure",
        )
    if device.state == "quarantined":
        return Finding(
            what,
            False,
            f"in quarantine after {device.faults} faults",
            "see the log of its agent for the cause, then run `farrier devices release "
            f"{device.id}`",
        )
    if device.state == "unfit":
        return Finding(what, False, f"gets no work: {device.unfit}", "restart its agent")
    sandbox = str(device.description.get("sandbox", ""))
    missing = [wall for wall in _WALLS if wall not in sandbox.split("+")]
    detail = f"{device.state}, seen {age:.0f} s ago, sandbox {sandbox or 'none'}"
    hint = f"its kernel has no {' and no '.join(missing)} for the sandbox" if missing else ""
    return Finding(what, True, detail, hint)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
