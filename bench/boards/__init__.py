"""Farrier on arm64 without a board: `make boards`."""
