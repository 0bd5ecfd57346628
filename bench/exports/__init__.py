"""Models exported by torch, for `bench.real` and `bench.public`. Farrier itself needs neither torch
nor transformers."""
