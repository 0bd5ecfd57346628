"""The Python client of a Farrier server."""
