"""Benchmarks of Farrier against the engines that a user could choose instead; runs from a
checkout."""
