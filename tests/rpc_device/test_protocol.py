"""The protocol: generated code in step with its source, signatures, channel options."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from farrier_device import protocol
from farrier_device.protocol import channel, signing
from farrier_device.protocol.generate import FILES


def test_generated_code_is_that_of_the_proto(tmp_path):
    root = Path(protocol.__path__[0])
    subprocess.run(
        [sys.executable, "-m", "farrier_device.protocol.generate", str(tmp_path)],
        env={"PYTHONPATH": str(root.parents[1])},
        check=True,
        timeout=240,
    )
    for name in FILES:
        fresh = (tmp_path / "farrier_device" / "protocol" / name).read_text()
        assert fresh == (root / name).read_text(), f"{name} is out of date: run protocol.generate"


def test_signature_holds_for_one_manifest_and_one_token():
    manifest = random.Random(1).randbytes(1009)
    signature = signing.sign("a token", manifest)
    assert len(signature) == 32
    assert signing.verify("a token", manifest, signature)
    assert not signing.verify("another token", manifest, signature)
    assert not signing.verify("a token", manifest + b" ", signature)
    assert not signing.verify("a token", manifest, signature[:-1])
    assert not signing.verify("a token", manifest, b"")


def test_signature_is_of_the_published_construction():
    """HMAC(HMAC(token, purpose), manifest), so that another implementation can check it."""
    import hashlib
    import hmac

    key = hmac.new(b"token", b"farrier-manifest-v1", hashlib.sha256).digest()
    assert signing.sign("token", b"x") == hmac.new(key, b"x", hashlib.sha256).digest()


def test_server_allows_the_pings_that_clients_send():
    client, server = dict(channel.CLIENT_OPTIONS), dict(channel.SERVER_OPTIONS)
    allowed = server["grpc.http2.min_recv_ping_interval_without_data_ms"]
    assert client["grpc.keepalive_time_ms"] > allowed
    assert client["grpc.http2.ping_timeout_ms"] == client["grpc.keepalive_timeout_ms"]
