"""The client of a Farrier server."""
