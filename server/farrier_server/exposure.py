"""The rule that the API and the broker accept connections from other machines only with TLS."""

from __future__ import annotations

import dataclasses
import ipaddress
import logging
import socket
from pathlib import Path

from farrier.errors import StorageError, UsageError
from farrier_farm.settings import Settings

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the certificate (with its chain) and its private key."""

    cert: Path
    key: Path

    def read(self) -> tuple[bytes, bytes]:
        """Return the contents of the files as (certificate, key). Raises StorageError."""
        try:
            return self.cert.read_bytes(), self.key.read_bytes()
        except OSError as error:
            raise StorageError(f"cannot read {error.filename}: {error.strerror}") from error


def secure(settings: Settings, host: str) -> Tls | None:
    """Return the certificate and key for a server that listens on `host`; None for a loopback
    address if no certificate is configured.

    Raises UsageError for an address that other machines can reach without TLS, unless the setting
    `insecure_private_network` is true.
    """
    cert, key = settings.tls_cert, settings.tls_key
    if (cert is None) != (key is None):
        raise UsageError(
            "TLS needs a certificate and its key, but only one of them is set",
            hint="FARRIER_TLS_CERT=cert.pem FARRIER_TLS_KEY=key.pem",
        )
    if cert is not None and key is not None:
        tls = Tls(cert, key)
        tls.read()
        return tls
    if not is_loopback(host):
        if not settings.insecure_private_network:
            raise UsageError(
                f"refusing to listen on {host} without TLS: tokens would be sent unencrypted",
                hint="FARRIER_TLS_CERT=cert.pem FARRIER_TLS_KEY=key.pem, or --host 127.0.0.1",
            )
        _log.warning(
            "listening on %s WITHOUT TLS (FARRIER_INSECURE_PRIVATE_NETWORK): anyone who can "
            "read the traffic of this network can read the tokens",
            host,
        )
    return None


def is_loopback(host: str) -> bool:
    """Return whether a server that listens on `host` can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket; for port 0, with a free port. Raises UsageError if the address is
    in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only for sockets created with IPPROTO_TCP does asyncio turn Nagle's algorithm off. With it,
    # the body of an answer would follow its head 40 ms later.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
        return listener
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="another server may be running there; --port selects another port",
        ) from error


def url(scheme: str, host: str, port: int) -> str:
    """Return `scheme://host:port`, with brackets around an IPv6 address."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
