"""The worker package: it leases jobs and runs each in a disposable process."""
