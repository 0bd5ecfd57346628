"""What the roles of the farm share: jobs, leases, devices, events, records, blobs and settings.

`Farm.open(settings)` is the way in; nothing outside this package imports `redis`.
"""
