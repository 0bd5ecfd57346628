"""Models exported by torch, for `bench.real` and `bench.public`; Farrier needs neither torch nor
transformers."""
