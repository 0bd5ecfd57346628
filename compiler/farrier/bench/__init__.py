"""Latency beside what a user would pick instead: each engine in its own process, interleaved."""
