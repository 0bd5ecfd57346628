"""Latency compared with other engines: each in its own process, interleaved."""
