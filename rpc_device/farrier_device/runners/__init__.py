"""The runners, which measure batches: one module for each kind."""
