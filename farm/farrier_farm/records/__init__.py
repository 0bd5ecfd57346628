"""Tuning records: their store, archives and pruning, and the cost models of a farm."""
