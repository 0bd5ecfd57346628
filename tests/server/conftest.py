"""Certificates for the tests of TLS."""

from __future__ import annotations

import pathlib
import subprocess

import pytest


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> tuple[pathlib.Path, pathlib.Path]:
    """A self-signed certificate of 127.0.0.1 and localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=IP:127.0.0.1,DNS:localhost -keyout {key} -out {cert}",
        shell=True,
        check=True,
        capture_output=True,
    )
    return cert, key
