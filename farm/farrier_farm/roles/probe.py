"""The check that the API on this machine answers. It connects as a client does, including TLS."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from farrier.errors import StorageError
from farrier_farm.settings import Settings

_TIMEOUT_S = 2.0


class Probe:
    """The check of an API server. `certified_name` is a name in the server's certificate, which is
    read at the first answer; "" without TLS."""

    def __init__(self, settings: Settings) -> None:
        self._address = local_address(settings.api_host, settings.api_port)
        self._trust = None if settings.tls_cert is None else _pinned(settings.tls_cert)
        self._port = settings.api_port
        self.certified_name = ""

    @property
    def url(self) -> str:
        """The URL at which users reach the API, which contains the name in the certificate, if
        there is one."""
        if self._trust is None:
            return f"http://{self._address}"
        if self.certified_name:
            return f"https://{local_address(self.certified_name, self._port)}"
        return f"https://{self._address}"

    def answers(self) -> bool:
        """Return whether the API and Redis are ready. Raises StorageError if the server reports
        that its disk is not."""
        if self._trust is None:
            connection = http.client.HTTPConnection(self._address, timeout=_TIMEOUT_S)
        else:
            connection = http.client.HTTPSConnection(
                self._address, timeout=_TIMEOUT_S, context=self._trust
            )
        try:
            connection.request("GET", "/readyz")
            if isinstance(connection.sock, ssl.SSLSocket):
                self.certified_name = _name(connection.sock.getpeercert() or {})
            response = connection.getresponse()
            if response.status == http.client.INSUFFICIENT_STORAGE:
                problem = json.loads(response.read())
                raise StorageError(problem["detail"], hint=problem["hint"])
            return response.status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def local_address(host: str, port: int) -> str:
    """Return the address `host:port` at which a client on this machine reaches a server that
    listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _pinned(certificate: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts exactly this certificate, independently of its host names
    and issuer."""
    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


def _name(certificate: dict[str, Any]) -> str:
    """Return the first host name in a certificate or, without host names, the first IP address."""
    names = certificate.get("subjectAltName", ())
    ordered = [value for kind, value in names if kind == "DNS"]
    ordered += [value for kind, value in names if kind == "IP Address"]
    return ordered[0].replace("*.", "any.", 1) if ordered else ""
