"""The gRPC options of client and server, as pairs of name and value.

The keepalive detects within half a minute that a peer behind a silent NAT has died.
`ping_timeout_ms` is set as well, because its default of 60 s would override the keepalive's
timeout. A server drops a client that pings more often than the server allows ("too_many_pings"), so
the options of both sides are defined together here.
"""

from __future__ import annotations

MAX_MESSAGE_BYTES = 64 << 20  # A manifest with thousands of candidates; gRPC's default is 4 MiB.
CHUNK_BYTES = 1 << 20  # of a blob

_PING_EVERY_MS = 20_000
_PING_TIMEOUT_MS = 10_000

_SHARED: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", _PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)

CLIENT_OPTIONS: tuple[tuple[str, int], ...] = (
    *_SHARED,
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 10_000),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_SHARED,
    ("grpc.http2.min_ping_interval_without_data_ms", _PING_EVERY_MS // 2),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_EVERY_MS // 2),
    ("grpc.so_reuseport", 0),
    # A connection costs the broker a descriptor and 11 kB before any token was seen. A connection
    # that does not finish its handshakes, TLS's and HTTP/2's, or makes no call, is closed.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.max_concurrent_streams", 1000),
)
