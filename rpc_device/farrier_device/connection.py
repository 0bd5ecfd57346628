"""The agent's side of the protocol: the channel to the broker, calls of the broker, and their
errors."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from farrier_device.protocol import channel, device_pb2, device_pb2_grpc
from farrier_device.protocol.credentials import Bearer, Enrolled, Invited

if TYPE_CHECKING:
    from farrier_device.identity import Identity

CALL_TIMEOUT_S = 15.0
_LEASE_WAIT_S = 20.0
_BLOB_TIMEOUT_S = 120.0  # The time limit of one call; the next one continues where it stopped.


class AgentError(Exception):
    """An error that ends the agent, with a message for its operator."""

    exit_code = 1


class UsageError(AgentError):
    """A command-line option that is invalid or unsafe."""

    exit_code = 2


class TokenError(AgentError):
    """The broker rejects the token or secret: it is wrong, has been revoked, or does not permit the
    request."""

    exit_code = 11


class UnknownCallerError(TokenError):
    """The token or secret does not belong to any device, or no longer does."""


class FencedOutError(AgentError):
    """Another agent process has registered under this device's name, which ended this one's
    session."""

    exit_code = 15


class UnreachableError(Exception):
    """The broker did not answer; the next call may succeed."""


class RefusedError(UnreachableError):
    """The broker has rejected this request for good; it must not be repeated."""


class UnsupportedError(UnreachableError):
    """The broker's version is too old to support this call."""


class SessionLostError(Exception):
    """The broker does not know the session, because it has ended or because the broker has lost
    it."""


class BrokerBlobError(Exception):
    """The broker does not have the requested blob."""


def open_channel(broker: str, tls_ca: Path | None, tls_name: str | None = None) -> Any:
    """Return a channel to HOST:PORT, encrypted if `tls_ca` names a file of CA certificates (PEM);
    `tls_name` is the name in the broker's certificate, if it is not HOST.

    Raises UsageError for a file that cannot be read, a malformed address, and for a broker beyond
    loopback without TLS, because its token and code would travel in the clear.
    """
    host, colon, port = broker.rpartition(":")
    if not (host and colon and port.isdecimal()):
        raise UsageError(f"--broker {broker!r} is not HOST:PORT")
    if tls_ca is None:
        if not _is_loopback(host.strip("[]")):
            raise UsageError(
                f"the broker {broker} is not on this machine; pass --tls-ca, so that the token "
                "and the code are not sent unencrypted"
            )
        return grpc.insecure_channel(broker, options=channel.CLIENT_OPTIONS)
    try:
        certificates = tls_ca.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the file of --tls-ca {tls_ca}: {error.strerror}") from None
    credentials = grpc.ssl_channel_credentials(root_certificates=certificates)
    options: list[tuple[str, int | str]] = [*channel.CLIENT_OPTIONS]
    if tls_name:
        options.append(("grpc.ssl_target_name_override", tls_name))
    return grpc.secure_channel(broker, credentials, options=options)


class Connection:
    """The calls of the gRPC service Broker, made with the identity of a device. Each raises
    UnreachableError, or the error that `device.proto` assigns to the broker's answer:
    SessionLostError, RefusedError, TokenError, FencedOutError."""

    def __init__(self, grpc_channel: Any, identity: Identity) -> None:
        self._channel = grpc_channel
        self._stub: Any = device_pb2_grpc.BrokerStub(grpc_channel)  # type: ignore[no-untyped-call]
        self._identity = identity

    def enrol(
        self, request: device_pb2.EnrolRequest, caller: Bearer | Invited
    ) -> device_pb2.EnrolReply:
        """Request a secret for this device from the broker. Raises UnsupportedError as well."""
        reply: device_pb2.EnrolReply = self._call(self._stub.Enrol, request, caller)
        return reply

    def register(self, request: device_pb2.RegisterRequest) -> device_pb2.RegisterReply:
        reply: device_pb2.RegisterReply = self._call(self._stub.Register, request)
        return reply

    def heartbeat(self, request: device_pb2.HeartbeatRequest) -> device_pb2.HeartbeatReply:
        reply: device_pb2.HeartbeatReply = self._call(self._stub.Heartbeat, request)
        return reply

    def report(self, request: device_pb2.ReportRequest) -> device_pb2.ReportReply:
        reply: device_pb2.ReportReply = self._call(self._stub.Report, request)
        return reply

    def lease(
        self, session: device_pb2.Session, polling: Callable[[Callable[[], Any]], None]
    ) -> device_pb2.LeaseReply:
        """Wait for a batch to measure and return the broker's reply. `polling` is called at once
        with a function that cancels the wait; the reply then contains no batch."""
        request = device_pb2.LeaseRequest(session=session, wait_ms=int(1000 * _LEASE_WAIT_S))
        timeout = _LEASE_WAIT_S + CALL_TIMEOUT_S
        future = self._stub.Lease.future(request, metadata=self._metadata(), timeout=timeout)
        polling(future.cancel)
        try:
            reply: device_pb2.LeaseReply = future.result()
            return reply
        except grpc.FutureCancelledError:
            return device_pb2.LeaseReply()
        except grpc.RpcError as error:
            raise _told_apart(error) from None

    def blob(
        self,
        session: device_pb2.Session,
        sha256: str,
        offset: int,
        fetching: Callable[[Callable[[], Any]], None],
    ) -> Iterator[bytes]:
        """Yield the bytes of a blob from `offset` on. `fetching` is called at once with a function
        that cancels the transfer; a cancelled transfer raises UnreachableError. Raises
        BrokerBlobError as well."""
        request = device_pb2.GetBlobRequest(session=session, sha256=sha256, offset=offset)
        stream = self._stub.GetBlob(request, metadata=self._metadata(), timeout=_BLOB_TIMEOUT_S)
        fetching(stream.cancel)
        try:
            for chunk in stream:
                yield chunk.data
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.OUT_OF_RANGE:
                raise BrokerBlobError(f"the broker has no blob {sha256}") from None
            raise _told_apart(error) from None

    def close(self) -> None:
        self._channel.close()

    def _metadata(
        self, caller: Bearer | Invited | Enrolled | None = None
    ) -> tuple[tuple[str, str], ...]:
        return (("authorization", str(caller or self._identity.caller)),)

    def _call(
        self, method: Callable[..., Any], request: object, caller: Bearer | Invited | None = None
    ) -> Any:
        try:
            return method(request, metadata=self._metadata(caller), timeout=CALL_TIMEOUT_S)
        except grpc.RpcError as error:
            raise _told_apart(error) from None


def _told_apart(error: Any) -> Exception:
    match error.code():
        case grpc.StatusCode.UNAUTHENTICATED:
            return UnknownCallerError(f"the broker does not accept the token: {error.details()}")
        case grpc.StatusCode.PERMISSION_DENIED:
            return TokenError(f"the broker rejects this agent: {error.details()}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return UnsupportedError(error.details())
        case grpc.StatusCode.ABORTED:
            return FencedOutError(error.details())
        case grpc.StatusCode.NOT_FOUND:
            return SessionLostError(error.details())
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.FAILED_PRECONDITION:
            return RefusedError(error.details())
        case code:
            return UnreachableError(f"{code.name.lower()}: {error.details()}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
