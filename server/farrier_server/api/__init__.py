"""The REST API, one resource a file; in each the schema comes first, then the routes."""
