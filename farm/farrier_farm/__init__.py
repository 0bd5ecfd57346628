"""The shared state of a farm's processes: jobs, leases, devices, events, records, blobs and
settings.

`Farm.open(settings)` connects to a farm. No module outside this package imports `redis`.
"""
