"""Queues whose items are leased, with an interface for threads (leases) and one for an event loop
(async_leases)."""
