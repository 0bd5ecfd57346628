"""The REST API, with one module for each resource. Each module defines the schemas first, then the
routes."""
