"""Tuning records: their storage, archives and removal, and the cost models that are trained on
them."""
