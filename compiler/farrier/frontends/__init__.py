"""Frontends: one package per model format, and the graph builder that all of them use."""
