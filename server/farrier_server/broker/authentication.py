"""The authentication of calls to the broker, before the message of a call is read.

An enrolled device has a secret of its own, and proves this with each call. Other devices send the
token that all devices of a farm share; the session then checks the device name that such a caller
uses. The holder of an enrolment token may only enrol a device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from farrier_device.protocol import signing
from farrier_device.protocol.credentials import Bearer, Enrolled, Invited, parsed
from farrier_farm.devices.async_enrolments import OwnSecret, Secrets, is_shared
from farrier_farm.devices.sessions import generation_of
from farrier_farm.errors import DeviceRefusedError, StaleSessionError

_ENROL = "/farrier.device.v1.Broker/Enrol"
NOBODY = (
    "the device token is missing or wrong: it is in the file device.token of the "
    "farm's FARRIER_HOME"
)
_NO_DEVICE = (
    "this secret does not belong to a device of this farm: enrol the device again, with a "
    "token from `farrier devices add NAME`"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller of the broker. `own` is the device's own secret, or None for a device
    that has only the shared token."""

    shared: str  # The token that all devices share.
    own: OwnSecret | None = None

    @property
    def generation(self) -> str:
        """The generation of the caller's secret, which changes at each enrolment; "" for a caller
        without a secret."""
        return "" if self.own is None else self.own.generation

    def check_session(self, device: str, session: str) -> None:
        """Check that the caller may use a session. Raises DeviceRefusedError if the session belongs
        to another device, StaleSessionError if the session was opened with another secret or with
        none: an intercepted session id is useless without its secret."""
        self.check(device)
        if generation_of(session) != self.generation:
            raise StaleSessionError(f"device {device} has no such session", hint="connect again")

    def check(self, device: str) -> None:
        """Check that the caller may act as `device`. Raises DeviceRefusedError if the caller's
        secret belongs to another device."""
        if self.own is not None and self.own.device != device:
            raise DeviceRefusedError(
                f"the caller is the device {self.own.device}, so it cannot act as {device}",
                hint="each agent needs its own --state folder",
            )

    def sign(self, lease: str, fence: int, manifest: bytes) -> bytes:
        """Return the signature of a batch's manifest and lease, by which the device verifies that
        the batch comes from the farm."""
        if self.own is None:
            return signing.sign(self.shared, manifest)
        return signing.sign_batch(self.own.secret, lease, fence, manifest)

    def has_signed(self, lease: str, fence: int, result: bytes, signature: bytes) -> bool:
        """Return whether the device has signed a result. Raises DeviceRefusedError if another
        device signed the result, or if the result is unsigned although the device has a secret."""
        if self.own is None:
            return False
        if not signing.verify_report(self.own.secret, lease, fence, result, signature):
            raise DeviceRefusedError(
                f"the result of {lease} is not signed by the device {self.own.device}",
                hint="it was changed during the transfer, or the device has enrolled again "
                "in the meantime",
            )
        return True


class Authenticator:
    """The authentication of callers by their credentials alone, without reading from Redis. It
    does not check whether the device was revoked or has enrolled again; opening or using a
    session does."""

    def __init__(self, token: str, secrets: Secrets) -> None:
        self._token = token
        self._secrets = secrets

    def caller(self, metadata: Any) -> Caller | None:
        """Return the caller that the metadata of a call authenticate; None for invalid credentials,
        or an enrolment token."""
        match parsed(_authorization(metadata)):
            case Bearer() as bearer if is_shared(bearer, self._token):
                return Caller(self._token)
            case Enrolled() as enrolled:
                own = self._secrets.proven(enrolled)
                return None if own is None else Caller(self._token, own)
            case _:
                return None

    def guest(self, metadata: Any) -> Bearer | Invited | None:
        """Return the credential with which the caller may enrol a device, None if the metadata
        contain no such credential."""
        match parsed(_authorization(metadata)):
            case Bearer() as bearer if is_shared(bearer, self._token):
                return bearer
            case Invited() as invited:
                return invited
            case _:
                return None

    def why_not(self, metadata: Any) -> str:
        """Return the reason for which the credentials in the metadata were refused."""
        is_device = isinstance(parsed(_authorization(metadata)), Enrolled)
        return _NO_DEVICE if is_device else NOBODY


class AuthenticatingInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """The interceptor that refuses callers who are not authenticated, with UNAUTHENTICATED."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        metadata = details.invocation_metadata
        judge = self._authenticator
        is_for_enrolment = details.method == _ENROL
        who = judge.guest(metadata) if is_for_enrolment else judge.caller(metadata)
        if who is not None:
            return await continuation(details)
        return _refusal(judge.why_not(metadata))


def _authorization(metadata: Any) -> str:
    return str(dict(metadata or ()).get("authorization", ""))


def _refusal(why: str) -> grpc.RpcMethodHandler:
    async def refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)

    return grpc.unary_unary_rpc_method_handler(refuse)
