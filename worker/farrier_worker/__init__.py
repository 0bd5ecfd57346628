"""The worker: leases jobs and runs each in a disposable process of its own."""
