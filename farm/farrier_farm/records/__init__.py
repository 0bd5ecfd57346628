"""Tuning records: their store, archives and pruning, and what is learnt from them."""
