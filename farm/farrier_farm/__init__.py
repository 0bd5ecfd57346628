"""The shared state of the farm's roles: jobs, leases, devices, events, records, blobs and settings.

`Farm.open(settings)` opens it; nothing outside this package imports `redis`.
"""
