"""Queues whose items are leased: to threads (leases), and on an event loop (async_leases)."""
