"""Compare latency with other engines: each in its own process, in alternation."""
