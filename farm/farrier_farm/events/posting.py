"""Sending of a signed POST request to a URL that a user has registered. The URL is untrusted: its
host may be any machine.

The host name is resolved once, and the connection goes to the address that was checked, so a change
of the name's address cannot bypass the check. Addresses outside the public internet are refused,
because the farm may have access to hosts that its users do not. Redirects are not followed, and
only the header of the answer is read.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from farrier.errors import UsageError

# The limit of a whole try, except for the name lookup, which has the separate limit `RESOLVE_S`
# because any name server may be responsible for the name.
TIMEOUT_S = 10.0
RESOLVE_S = 5.0
# The most name lookups of a user. The system continues a lookup after its caller has stopped
# waiting.
MOST_LOOKUPS = 4
LONGEST_URL = 2000
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Addresses: TypeAlias = Sequence[Any]  # of `socket.getaddrinfo`
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: an IPv4 address is its end


class PostError(Exception):
    """The error for a request whose receiver was not reached, or refused the request."""


def check_url(url: str, *, private: bool, user: str = "") -> None:
    """Check the URL of a webhook that `user` registers. Raises UsageError if the URL is malformed,
    or if its host has an address that is not public and `private` is false."""
    host, port = _host_of(url)
    try:
        _resolved(host, port, private=private, user=user)
    except PostError as error:
        raise UsageError(
            f"{url[:200]!r} cannot be the URL of a webhook: {error}",
            hint="use a public host; FARRIER_WEBHOOK_PRIVATE=1 on the server allows others",
        ) from None


def post(url: str, body: bytes, headers: dict[str, str], *, private: bool, user: str = "") -> None:
    """Send a POST request to the URL of a user's webhook. Raises PostError unless the answer
    arrives in time and has a 2xx status."""
    try:
        host, port = _host_of(url)
    except UsageError as error:
        raise PostError(error.message) from None
    parts = urllib.parse.urlsplit(url)
    address = _resolved(host, port, private=private, user=user)
    try:
        with _connected(address, port, host if parts.scheme == "https" else None) as sock:
            connection = http.client.HTTPConnection(host, port)
            connection.sock = sock
            path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
            connection.request("POST", path, body, {**headers, "Connection": "close"})
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PostError(f"{type(error).__name__}: {error}") from error
    if not 200 <= status < 300:
        raise PostError(f"the answer has the status {status}")


def signature(secret: str, body: bytes, at: int) -> str:
    """Return the value of the header that proves to the receiver that the farm sent `body` at the
    time `at`."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def _host_of(url: str) -> tuple[str, int]:
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        if not parts.hostname or parts.username is not None or len(url) > LONGEST_URL:
            raise ValueError
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError
        return parts.hostname, port
    except (ValueError, KeyError):
        raise UsageError(
            f"{url[:200]!r} is not a URL to which events can be posted",
            hint="use the form https://HOST/PATH, without a user",
        ) from None


def _resolved(host: str, port: int, *, private: bool, user: str) -> str:
    """Return the address to which to connect. All addresses of the host name have to be allowed;
    otherwise the error is the same as for an unknown name, so that it does not reveal names of the
    farm's network."""
    hidden = f"{host} cannot be resolved, or has an address that is not public"
    try:
        answers = _looked_up(host, port, user)
    except (OSError, UnicodeError) as error:
        raise PostError(f"{host} cannot be resolved: {error}" if private else hidden) from error
    addresses = [str(address[4][0]).partition("%")[0] for address in answers]
    if not addresses:
        raise PostError(f"{host} has no address" if private else hidden)
    if not private and not all(_is_public(ipaddress.ip_address(text)) for text in addresses):
        raise PostError(hidden)
    return addresses[0]


class _Lookups:
    """The name lookups in progress. The system's name lookup has no time limit, so each lookup has
    a thread, which is abandoned if the lookup takes too long."""

    def __init__(self) -> None:
        self._of: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()

    def begin(self, user: str, search: Callable[[], _Addresses]) -> Future[_Addresses]:
        """Start a name lookup. Raises PostError for a user who has too many lookups in progress."""
        with self._lock:
            if self._of[user] >= MOST_LOOKUPS:
                raise PostError("earlier URLs are still being resolved")
            self._of[user] += 1
        result: Future[_Addresses] = Future()
        threading.Thread(target=self._run, args=[user, search, result], daemon=True).start()
        return result

    def _run(self, user: str, search: Callable[[], _Addresses], result: Future[_Addresses]) -> None:
        try:
            result.set_result(search())
        except Exception as error:
            result.set_exception(error)
        finally:
            with self._lock:
                self._of[user] -= 1


_lookups = _Lookups()


def _looked_up(host: str, port: int, user: str) -> _Addresses:
    """Return the addresses of a host. Raises OSError, UnicodeError, and PostError if the lookup
    takes too long."""

    def search() -> _Addresses:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)

    try:
        return _lookups.begin(user, search).result(RESOLVE_S)
    except TimeoutError:
        raise PostError(f"{host} was not resolved within {RESOLVE_S:g} s") from None


def _is_public(address: _Address) -> bool:
    """Return whether an address is public; for an IPv6 address that contains an IPv4 address,
    whether both are."""
    if isinstance(address, ipaddress.IPv6Address):
        within = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            within = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if within is not None:
            return _is_public(within)
        # A Teredo address leads through a relay to the IPv4 host that the address contains.
        if address.teredo is not None:
            return False
        if address.is_site_local:  # RFC 3879: still routed within networks that keep fec0::/10
            return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )


@contextlib.contextmanager
def _connected(address: str, port: int, tls_host: str | None) -> Iterator[socket.socket]:
    """Return a context with a connection to `address`, with TLS if `tls_host` is set, that is
    closed after `TIMEOUT_S` in any case."""
    deadline = time.monotonic() + TIMEOUT_S
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.create_connection((address, port), TIMEOUT_S))
        if tls_host is not None:
            sock = ssl.create_default_context().wrap_socket(
                sock, server_hostname=tls_host, do_handshake_on_connect=False
            )
            stack.enter_context(sock)
        cut = threading.Timer(max(0.0, deadline - time.monotonic()), _cut, [sock])
        cut.daemon = True
        cut.start()
        stack.callback(cut.cancel)
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()
        yield sock


def _cut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # TLS's own shutdown would wait for the other side.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
