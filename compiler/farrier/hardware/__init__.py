"""Tools for designers of accelerators: check models on their hardware, and explore its
parameters."""
